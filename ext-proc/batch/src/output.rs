//! Lines of output and error files, in OpenAI's form.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::id::request_id;

/// Length of a foreign text inside an error, in characters.
const TEXT_CHARACTERS_MAX: usize = 2_000;

/// A response of the gateway.
#[derive(Debug)]
pub struct StoredResponse {
    /// HTTP status.
    pub status: u16,
    /// `x-request-id` of the response.
    pub request_id: Option<String>,
    /// Body.
    pub body: Vec<u8>,
}

impl StoredResponse {
    /// Whether the response is a success: its status says so, and its body is JSON.
    pub(crate) fn is_success(&self) -> bool {
        let is_json = || serde_json::from_slice::<&RawValue>(&self.body).is_ok();
        (200..300).contains(&self.status) && is_json()
    }
}

/// The reason for which a line has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingResponse {
    /// The deadline passed.
    Expired,
    /// The batch was cancelled.
    Cancelled,
    /// No attempt brought a response.
    Unreachable(String),
    /// The response is too large.
    TooLarge(usize),
    /// The stored line cannot be read.
    Unreadable(String),
}

#[derive(Serialize)]
struct OutputLine<'a> {
    id: String,
    custom_id: &'a str,
    response: Option<OutputResponse<'a>>,
    error: Option<OutputError<'a>>,
}

#[derive(Serialize)]
struct OutputResponse<'a> {
    status_code: u16,
    request_id: &'a str,
    body: Box<RawValue>,
}

#[derive(Serialize)]
struct OutputError<'a> {
    code: &'a str,
    message: String,
}

/// Renders the result of a line that has a response.
#[must_use]
pub fn response_line(
    batch: &str,
    number: i64,
    custom_id: &str,
    response: &StoredResponse,
) -> Vec<u8> {
    let id = request_id(batch, number);
    let request_id = response.request_id.as_deref().unwrap_or(&id);
    render(&OutputLine {
        custom_id,
        response: Some(OutputResponse {
            status_code: response.status,
            request_id,
            body: body(&response.body),
        }),
        error: None,
        id: id.clone(),
    })
}

/// Renders the result of a line without a response.
#[must_use]
pub fn error_line(batch: &str, number: i64, custom_id: &str, reason: &MissingResponse) -> Vec<u8> {
    render(&OutputLine {
        id: request_id(batch, number),
        custom_id,
        response: None,
        error: Some(OutputError {
            code: reason.code(),
            message: reason.message(),
        }),
    })
}

impl MissingResponse {
    fn code(&self) -> &'static str {
        match self {
            Self::Expired => "batch_expired",
            Self::Cancelled => "batch_cancelled",
            Self::Unreachable(_) => "gateway_unreachable",
            Self::TooLarge(_) => "response_too_large",
            Self::Unreadable(_) => "invalid_request",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Expired => {
                "This request could not be executed before the completion window expired."
                    .to_owned()
            }
            Self::Cancelled => "This request was not executed: the batch was cancelled.".to_owned(),
            Self::Unreachable(cause) => {
                format!(
                    "No attempt brought a response. The last one failed: {}",
                    cut(cause)
                )
            }
            Self::TooLarge(bytes_max) => format!("The response has more than {bytes_max} bytes."),
            Self::Unreadable(cause) => format!("The stored line cannot be read: {}", cut(cause)),
        }
    }
}

/// The body as one line of JSON. A body that is no JSON, such as a proxy's plain text, becomes an error's message.
fn body(bytes: &[u8]) -> Box<RawValue> {
    if let Ok(raw) = serde_json::from_slice::<Box<RawValue>>(bytes) {
        let is_one_line = !raw.get().contains(['\n', '\r']);
        if is_one_line {
            return raw;
        }
        // Strings of JSON have no bare line feed, so each one is white space between the values.
        let line = raw.get().replace(['\n', '\r'], " ");
        if let Ok(raw) = RawValue::from_string(line) {
            return raw;
        }
    }
    let text = String::from_utf8_lossy(bytes);
    let message = serde_json::json!({ "error": {
        "message": cut(&text), "type": "server_error", "param": null, "code": "invalid_response",
    } });
    to_raw_value(&message).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

fn render(line: &OutputLine<'_>) -> Vec<u8> {
    // Strings and numbers always become JSON.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parsed(line: &[u8]) -> Value {
        let (last, text) = line.split_last().unwrap();
        assert_eq!(*last, b'\n');
        assert!(!text.contains(&b'\n') && !text.contains(&b'\r'));
        serde_json::from_slice(text).unwrap()
    }

    #[test]
    fn a_response_keeps_its_numbers_and_order_on_one_line() {
        let response = StoredResponse {
            status: 200,
            request_id: None,
            body: b"{\r\n \"z\": 1.10,\n \"a\": \"x\\ny\" }\n".to_vec(),
        };
        let line = response_line("batch_1", 3, "mine", &response);
        let text = String::from_utf8(line.clone()).unwrap();
        assert!(text.contains("\"z\": 1.10,"), "{text}");
        let line = parsed(&line);
        assert_eq!(line["id"], "batch_req_1_3");
        assert_eq!(line["custom_id"], "mine");
        assert_eq!(line["response"]["status_code"], 200);
        assert_eq!(line["response"]["request_id"], "batch_req_1_3");
        assert_eq!(line["response"]["body"]["a"], "x\ny");
        assert_eq!(line["error"], Value::Null);
    }

    #[test]
    fn a_plain_text_becomes_an_error() {
        let response = StoredResponse {
            status: 503,
            request_id: Some("r".into()),
            body: b"no healthy upstream".to_vec(),
        };
        let line = parsed(&response_line("batch_1", 1, "a", &response));
        let message = "no healthy upstream";
        assert_eq!(line["response"]["body"]["error"]["message"], message);
        let line = parsed(&error_line("batch_1", 1, "a", &MissingResponse::Expired));
        assert_eq!(line["response"], Value::Null);
        assert_eq!(line["error"]["code"], json!("batch_expired"));
    }

    proptest! {
        #[test]
        fn any_body_and_any_name_become_one_line(bytes in prop::collection::vec(any::<u8>(), 0..200), custom_id in ".*") {
            let response = StoredResponse { status: 200, request_id: None, body: bytes };
            let line = parsed(&response_line("batch_1", 1, &custom_id, &response));
            prop_assert_eq!(line["custom_id"].as_str(), Some(custom_id.as_str()));
        }
    }
}
