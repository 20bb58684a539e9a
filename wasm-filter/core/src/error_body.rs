//! Bodies of errors, in the shape that the clients of a path expect.

use isotherm_fingerprint::is_anthropic;
use serde_json::{Value, json};

/// An error in OpenAI's shape.
#[must_use]
pub fn openai(message: &str, kind: &str, param: Option<&str>, code: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

/// An error in the shape of a path's API, made of the one in OpenAI's shape.
#[must_use]
pub fn for_path(path: &str, status: u16, openai: Value) -> Value {
    match is_anthropic(path) {
        true => anthropic(status, openai),
        false => openai,
    }
}

/// An error in the shape of Anthropic's API, made of the one in OpenAI's shape. Any other body stays as it is.
#[must_use]
pub fn anthropic(status: u16, openai: Value) -> Value {
    match openai.pointer("/error/message") {
        Some(message) => {
            json!({ "type": "error", "error": { "type": kind_of(status), "message": message } })
        }
        None => openai,
    }
}

/// The name that Anthropic's API gives to the errors of a status.
fn kind_of(status: u16) -> &'static str {
    match status {
        400 | 405 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_anthropics_api_get_errors_of_its_shape() {
        let error = || openai("Try again.", "server_error", None, "queue_full");
        for path in ["/v1/messages", "/v1/messages/count_tokens?beta=true"] {
            for (status, kind) in [
                (400, "invalid_request_error"),
                (404, "not_found_error"),
                (413, "request_too_large"),
                (429, "rate_limit_error"),
                (503, "overloaded_error"),
            ] {
                let expected =
                    json!({ "type": "error", "error": { "type": kind, "message": "Try again." } });
                assert_eq!(for_path(path, status, error()), expected);
            }
        }
        assert_eq!(for_path("/v1/chat/completions", 503, error()), error());
        let models = json!({ "object": "list" });
        assert_eq!(for_path("/v1/messages", 200, models.clone()), models);
    }
}
