//! Ids of stored responses. Only the engine that made a response of `/v1/responses` has it: a request that names the id is for
//! that engine.

/// The longest id, in bytes. Engines write 37.
pub const ID_BYTES_MAX: usize = 128;

/// The beginning of every id. vLLM and SGLang refuse another one.
const PREFIX: &[u8] = b"resp_";
/// The path below which stored responses are.
const FOLDER: &str = "/v1/responses/";

/// Whether the text is the id of a stored response, which is safe in a header and in an outcome.
#[must_use]
pub fn is_id(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:~".contains(byte);
    text.len() <= ID_BYTES_MAX
        && text.len() > PREFIX.len()
        && text.starts_with(PREFIX)
        && text.iter().all(is_plain)
}

/// The id that a path names: `/v1/responses/{id}`, also with `/cancel` or `/input_items` behind it. A query, a trailing slash and any
/// prefix are ignored.
#[must_use]
pub fn id_in_path(path: &str) -> Option<&str> {
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let (_, below) = path.split_once(FOLDER)?;
    let below = below.strip_suffix('/').unwrap_or(below);
    let id = match below.split_once('/') {
        None => below,
        Some((id, "cancel" | "input_items")) => id,
        Some(_) => return None,
    };
    is_id(id.as_bytes()).then_some(id)
}

/// The methods of a path below that of responses; `None` for any other path.
pub(crate) fn allowed_methods(path: &str) -> Option<&'static str> {
    let below = path.strip_prefix(FOLDER)?;
    Some(match below.split_once('/') {
        None => "GET, DELETE",
        Some((_, "cancel")) => "POST",
        Some(_) => "GET",
    })
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    #[test]
    fn a_path_names_a_stored_response_with_or_without_an_action() {
        for path in [
            "/v1/responses/resp_1a",
            "/v1/responses/resp_1a/",
            "/v1/responses/resp_1a?stream=true",
            "/v1/responses/resp_1a/cancel",
            "/openai/v1/responses/resp_1a/input_items?limit=2",
        ] {
            assert_eq!(id_in_path(path), Some("resp_1a"), "{path}");
        }
        for path in [
            "/v1/responses",
            "/v1/responses/",
            "/v1/responses/compact",
            "/v1/responses/resp_",
            "/v1/responses/resp_1a/metrics",
            "/v1/responses/resp_1a/cancel/x",
            "/v1/models/resp_1a",
            "/v1/models/x?y=/v1/responses/resp_1a",
        ] {
            assert_eq!(id_in_path(path), None, "{path}");
        }
    }

    #[test]
    fn an_id_fits_into_headers_and_outcomes() {
        assert!(is_id(b"resp_0a-B.c:d~e_f"));
        for bad in [
            "",
            "resp_",
            "msg_1",
            "resp_a;b",
            "resp_a=b",
            "resp_a b",
            "resp_\u{e4}",
            "resp_a%2f",
        ] {
            assert!(!is_id(bad.as_bytes()), "{bad}");
        }
        let long = String::from("resp_") + &"a".repeat(ID_BYTES_MAX - 5);
        assert!(is_id(long.as_bytes()));
        assert!(!is_id((long + "a").as_bytes()));
    }
}
