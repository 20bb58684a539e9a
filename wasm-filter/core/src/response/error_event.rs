//! Errors behind a status of success: an engine sends the head of a stream before it computes the prompt.

/// Texts with which the data of an error begins, in the forms of the engines: without white space.
const ERRORS: [&[u8]; 4] = [
    br#"{"error":"#,
    br#"{"type":"error""#,
    br#"{"object":"error""#,
    br#"{"type":"response.failed""#,
];
/// Bytes of the longest of them.
const ERROR_BYTES_MAX: usize = 26;

/// Whether the first event of a stream that has data is an error.
pub(super) fn is_first(stream: &[u8]) -> bool {
    let lines = stream.split(|byte| matches!(byte, b'\n' | b'\r'));
    let mut data = lines.filter_map(|line| line.strip_prefix(b"data:"));
    data.find_map(kind).unwrap_or_default()
}

/// Whether data is an error; `None` for data without content, as keep-alive events have it.
fn kind(data: &[u8]) -> Option<bool> {
    let mut text = [0; ERROR_BYTES_MAX];
    let solid = data.iter().filter(|byte| !byte.is_ascii_whitespace());
    let mut length = 0;
    for (place, byte) in text.iter_mut().zip(solid) {
        *place = *byte;
        length += 1;
    }
    let text = text.get(..length)?;
    let is_ping = text.is_empty() || text == b"{}" || text.starts_with(br#"{"type":"ping""#);
    (!is_ping).then(|| ERRORS.iter().any(|error| text.starts_with(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_begins_with_an_error_is_one() {
        for stream in [
            "data: {\"error\": {\"message\": \"out of memory\"}}\n\ndata: [DONE]\n\n",
            ": keep-alive\n\ndata: { \"object\": \"error\", \"message\": \"\"}\r\n\r\n",
            "event: ping\ndata: {\"type\": \"ping\"}\n\nevent: error\ndata: {\"type\": \"error\"}\n\n",
            "data: {\"type\":\"response.failed\",\"response\":{}}\n\n",
        ] {
            assert!(is_first(stream.as_bytes()), "{stream}");
        }
    }

    #[test]
    fn an_error_behind_a_token_is_none_and_neither_is_text_about_errors() {
        for stream in [
            "",
            "data: {\"id\":\"1\",\"choices\":[]}\n\ndata: {\"error\":{}}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":\"}}]}\n\n",
            "data: [DONE]\n\n",
        ] {
            assert!(!is_first(stream.as_bytes()), "{stream}");
        }
    }
}
