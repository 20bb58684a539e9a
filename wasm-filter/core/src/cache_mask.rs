//! Hides from a client how much of its prompt an engine had in its cache.
//!
//! The mask overwrites the numbers of the cache in a response: the first digit by 0, the others by spaces. JSON allows the spaces, and the
//! length of the body stays. The mask reads each byte once and keeps its state from piece to piece, so it holds no piece back. Generated text
//! cannot imitate a member: inside a JSON string its quotes are escaped.

use memchr::memchr;

use crate::headers::{self, Headers};
use crate::response::EVENT_STREAM;

/// The members whose numbers tell about the cache. The counts of what was not cached tell as much.
const MEMBERS: [&[u8]; 5] = [
    b"cached_tokens",
    b"cache_read_input_tokens",
    b"cache_creation_input_tokens",
    b"prompt_cache_hit_tokens",
    b"prompt_cache_miss_tokens",
];
/// The longest name of [`MEMBERS`].
const NAME_BYTES_MAX: usize = 27;

/// The reader of one response.
#[derive(Debug, Default)]
pub struct CacheMask {
    position: Position,
    /// The text since the last quote, as far as a name may be long.
    name: [u8; NAME_BYTES_MAX],
    name_bytes: usize,
}

/// The position of the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Somewhere without a known member.
    #[default]
    Text,
    /// Behind a quote, perhaps in the name of a member.
    Name,
    /// Behind the name of a member.
    Colon,
    /// In front of the value of a member.
    Value,
    /// In the number of a member.
    Number,
}

impl CacheMask {
    /// A mask for a response with these headers; `None` where its body cannot be read.
    #[must_use]
    pub fn for_response(headers: &Headers) -> Option<Self> {
        let media_type = headers::media_type(headers)?;
        let has_type = headers::is_json(&media_type) || media_type == EVENT_STREAM;
        (has_type && !headers::is_encoded(headers)).then(Self::default)
    }

    /// Overwrites the numbers in the next piece of the body. Returns whether the piece has changed.
    #[must_use]
    pub fn apply(&mut self, piece: &mut [u8]) -> bool {
        let mut has_changed = false;
        let mut rest = piece;
        loop {
            if self.position == Position::Text {
                let Some(quote) = memchr(b'"', rest) else {
                    return has_changed;
                };
                let (_, behind) = rest.split_at_mut(quote);
                rest = behind;
            }
            let Some((byte, behind)) = rest.split_first_mut() else {
                return has_changed;
            };
            if let Some(masked) = self.step(*byte) {
                has_changed = true;
                *byte = masked;
            }
            rest = behind;
        }
    }

    /// Reads one byte. Returns the byte in its place, if it is hidden.
    fn step(&mut self, byte: u8) -> Option<u8> {
        match (self.position, byte) {
            (Position::Name, b'"') if self.is_member() => self.position = Position::Colon,
            (Position::Name, byte) if byte != b'"' => self.push(byte),
            (Position::Colon | Position::Value, b' ' | b'\t' | b'\r' | b'\n') => {}
            (Position::Colon, b':') => self.position = Position::Value,
            (Position::Value, b'0'..=b'9') => {
                self.position = Position::Number;
                return Some(b'0');
            }
            (Position::Number, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-') => {
                return Some(b' ');
            }
            // A closing quote of one text may be the opening quote of the next.
            (_, b'"') => {
                self.position = Position::Name;
                self.name_bytes = 0;
            }
            _ => self.position = Position::Text,
        }
        None
    }

    fn push(&mut self, byte: u8) {
        match self.name.get_mut(self.name_bytes) {
            Some(free) => {
                *free = byte;
                self.name_bytes += 1;
            }
            None => self.position = Position::Text,
        }
    }

    fn is_member(&self) -> bool {
        let name = self.name.get(..self.name_bytes).unwrap_or_default();
        MEMBERS.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::from_pairs;

    fn masked(body: &str, piece_bytes: usize) -> String {
        let mut mask = CacheMask::default();
        let mut bytes = body.as_bytes().to_vec();
        for piece in bytes.chunks_mut(piece_bytes) {
            let before = piece.to_vec();
            assert_eq!(mask.apply(piece), piece != before);
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn the_numbers_are_hidden_wherever_the_pieces_end() {
        let body = r#"{"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":96},"completion_tokens":9,
            "cache_read_input_tokens" : 4096,"prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":113},"cached_tokens":null}"#;
        let expected = r#"{"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":0 },"completion_tokens":9,
            "cache_read_input_tokens" : 0   ,"prompt_cache_hit_tokens":0,"prompt_cache_miss_tokens":0  },"cached_tokens":null}"#;
        for piece_bytes in 1..=body.len() {
            assert_eq!(masked(body, piece_bytes), expected, "{piece_bytes}");
        }
        let before: serde_json::Value = serde_json::from_str(body).unwrap();
        let after: serde_json::Value = serde_json::from_str(expected).unwrap();
        assert_eq!(
            after["usage"]["prompt_tokens"],
            before["usage"]["prompt_tokens"]
        );
        assert_eq!(after["usage"]["cache_read_input_tokens"], 0);
    }

    #[test]
    fn text_that_names_a_member_stays() {
        for body in [
            r#"{"content":"\"cached_tokens\":96 and \"cached_tokens\": 5"}"#,
            r#"{"content":"cached_tokens: 96","n":7}"#,
            r#"{"my_cached_tokens":7,"cached_tokens_total":8,"cached_tokens":"9"}"#,
            r#"["cached_tokens",96,"cached_tokens" 7]"#,
        ] {
            for piece_bytes in [1, 5, body.len()] {
                assert_eq!(masked(body, piece_bytes), body);
            }
        }
    }

    #[test]
    fn only_a_body_that_can_be_read_gets_a_mask() {
        let has_mask =
            |pairs: &[(&str, &str)]| CacheMask::for_response(&from_pairs(pairs)).is_some();
        assert!(has_mask(&[("content-type", "application/json")]));
        assert!(has_mask(&[(
            "content-type",
            "text/event-stream; charset=utf-8"
        )]));
        assert!(!has_mask(&[("content-type", "text/html")]));
        let encoded = [
            ("content-type", "application/json"),
            ("content-encoding", "gzip"),
        ];
        assert!(!has_mask(&encoded));
    }
}
