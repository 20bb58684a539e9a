//! One line of an input file: a request with the caller's own name for it.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::endpoint::Endpoint;
use crate::limits::{CUSTOM_ID_CHARACTERS_MAX, MODEL_BYTES_MAX};

/// One line of an input file, read and checked.
#[derive(Debug)]
pub struct RequestLine<'a> {
    /// The caller's name of the request, unique within the file.
    pub custom_id: String,
    /// The path of the request.
    pub endpoint: Endpoint,
    /// The model that the request names.
    pub model: String,
    /// The body of the request, byte for byte.
    pub body: &'a RawValue,
}

/// A mistake in a line of an input file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// No JSON object with the expected members.
    #[error(
        "the line is no request: {0}; write one JSON object with `custom_id`, `method`, `url` and `body`"
    )]
    Json(String),
    /// Another encoding.
    #[error("the file is not in UTF-8, and seems to be in UTF-16: save it as UTF-8")]
    Encoding,
    /// Empty or too long a name.
    #[error("`custom_id` must have 1 to {CUSTOM_ID_CHARACTERS_MAX} characters")]
    CustomId,
    /// Another method.
    #[error("`method` must be POST")]
    Method,
    /// Another path.
    #[error("`url` must be one of {}", Endpoint::list())]
    Url,
    /// No object, or no model in it.
    #[error("`body` must be an object with a `model` of 1 to {MODEL_BYTES_MAX} bytes: {0}")]
    Body(String),
    /// A streamed response.
    #[error("`stream` must be false: a batch stores whole responses")]
    Stream,
}

impl LineError {
    /// The code of the error in OpenAI's form.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(_) => "invalid_json_line",
            Self::Encoding => "invalid_encoding",
            Self::CustomId => "invalid_custom_id",
            Self::Method => "invalid_method",
            Self::Url => "invalid_url",
            Self::Body(_) => "invalid_request_body",
            Self::Stream => "unsupported_stream",
        }
    }

    /// The member of the line that is wrong.
    #[must_use]
    pub fn parameter(&self) -> Option<&'static str> {
        match self {
            Self::Json(_) | Self::Encoding => None,
            Self::CustomId => Some("custom_id"),
            Self::Method => Some("method"),
            Self::Url => Some("url"),
            Self::Body(_) => Some("body"),
            Self::Stream => Some("body.stream"),
        }
    }
}

#[derive(Deserialize)]
struct RawLine<'a> {
    custom_id: String,
    method: String,
    url: String,
    #[serde(borrow)]
    body: &'a RawValue,
}

#[derive(Deserialize)]
struct RawBody {
    model: String,
    #[serde(default)]
    stream: Option<bool>,
}

impl<'a> RequestLine<'a> {
    /// Reads a line.
    ///
    /// # Errors
    /// The first mistake in the line.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError> {
        let json = |error: serde_json::Error| LineError::Json(error.to_string());
        let line = without_mark(line);
        if is_utf16(line) {
            return Err(LineError::Encoding);
        }
        let raw: RawLine<'a> = serde_json::from_slice(line).map_err(json)?;
        let characters = raw.custom_id.chars().count();
        if !(1..=CUSTOM_ID_CHARACTERS_MAX).contains(&characters) {
            return Err(LineError::CustomId);
        }
        // PostgreSQL stores no NUL in a text.
        if raw.custom_id.contains('\0') {
            return Err(LineError::CustomId);
        }
        if raw.method != "POST" {
            return Err(LineError::Method);
        }
        let endpoint = Endpoint::from_path(&raw.url).ok_or(LineError::Url)?;
        let body = |error: serde_json::Error| LineError::Body(error.to_string());
        if !raw.body.get().starts_with('{') {
            return Err(LineError::Body("it is no object".to_owned()));
        }
        let parsed: RawBody = serde_json::from_str(raw.body.get()).map_err(body)?;
        let model = parsed.model;
        if !(1..=MODEL_BYTES_MAX).contains(&model.len()) || model.contains('\0') {
            return Err(LineError::Body("the model's name does not fit".to_owned()));
        }
        if parsed.stream == Some(true) {
            return Err(LineError::Stream);
        }
        Ok(Self {
            custom_id: raw.custom_id,
            endpoint,
            model,
            body: raw.body,
        })
    }
}

/// Whether a line has nothing but white space; such a line is no request.
pub(crate) fn is_blank(line: &[u8]) -> bool {
    without_mark(line).trim_ascii().is_empty()
}

/// The line without the byte order mark that some editors write at the start of a file in UTF-8.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Whether a line begins as text in UTF-16 does: with a byte order mark, or with half a character that is zero.
fn is_utf16(line: &[u8]) -> bool {
    matches!(
        line,
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..]
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"\u00e4"}]}"#;

    fn line(custom_id: &str, method: &str, url: &str, body: &str) -> Vec<u8> {
        format!(r#"{{"custom_id":{custom_id},"method":"{method}","url":"{url}","body":{body}}}"#)
            .into_bytes()
    }

    #[test]
    fn a_line_is_read_and_its_body_stays_byte_for_byte() {
        let text = line(r#""a""#, "POST", "/v1/chat/completions", BODY);
        let parsed = RequestLine::parse(&text).unwrap();
        assert_eq!(parsed.custom_id, "a");
        assert_eq!(parsed.endpoint, Endpoint::ChatCompletions);
        assert_eq!(parsed.model, "m");
        assert_eq!(parsed.body.get(), BODY);
    }

    #[test]
    fn each_mistake_has_its_code() {
        let url = "/v1/chat/completions";
        let long = format!("\"{}\"", "x".repeat(CUSTOM_ID_CHARACTERS_MAX + 1));
        for (text, code) in [
            (b"{".to_vec(), "invalid_json_line"),
            (b"\xff\xfe".to_vec(), "invalid_encoding"),
            (br#"{"custom_id":"a"}"#.to_vec(), "invalid_json_line"),
            (line("7", "POST", url, BODY), "invalid_json_line"),
            (line(r#""""#, "POST", url, BODY), "invalid_custom_id"),
            (line(&long, "POST", url, BODY), "invalid_custom_id"),
            (line(r#""\u0000""#, "POST", url, BODY), "invalid_custom_id"),
            (line(r#""a""#, "GET", url, BODY), "invalid_method"),
            (
                line(r#""a""#, "POST", "http://h/v1/chat/completions", BODY),
                "invalid_url",
            ),
            (line(r#""a""#, "POST", url, "[]"), "invalid_request_body"),
            (line(r#""a""#, "POST", url, "{}"), "invalid_request_body"),
            (
                line(r#""a""#, "POST", url, r#"{"model":"m","stream":true}"#),
                "unsupported_stream",
            ),
        ] {
            let error = RequestLine::parse(&text).unwrap_err();
            assert_eq!(error.code(), code, "{}", String::from_utf8_lossy(&text));
        }
        let invalid = [&line(r#""a""#, "POST", url, BODY)[..20], b"\xff"].concat();
        assert!(RequestLine::parse(&invalid).is_err());
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_line() {
        let text = line(r#""a""#, "POST", "/v1/chat/completions", BODY);
        let marked = [b"\xef\xbb\xbf".as_slice(), &text].concat();
        assert_eq!(RequestLine::parse(&marked).unwrap().custom_id, "a");
        assert!(is_blank(b"\xef\xbb\xbf\r\n"));
    }

    #[test]
    fn a_file_in_utf_16_is_named_so() {
        let text = String::from_utf8(line(r#""a""#, "POST", "/v1/completions", BODY)).unwrap();
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [
            [b"\xff\xfe".to_vec(), little.clone()].concat(),
            [b"\xfe\xff".to_vec(), big.clone()].concat(),
            little,
            big,
        ] {
            let error = RequestLine::parse(&bytes).unwrap_err();
            assert!(error.to_string().contains("UTF-16"), "{error}");
        }
    }

    #[test]
    fn deep_nesting_overflows_no_stack() {
        let body = format!(
            r#"{{"model":"m","x":{}{}}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        let text = line(r#""a""#, "POST", "/v1/chat/completions", &body);
        assert_eq!(RequestLine::parse(&text).unwrap().model, "m");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = RequestLine::parse(&bytes);
        }
    }
}
