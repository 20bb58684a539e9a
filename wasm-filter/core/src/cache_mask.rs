//! Hides from a client how much of its prompt an engine had in its cache.
//!
//! The mask replaces the numbers of the cache in a response by 0. In Anthropic's API it adds what the cache held to
//! `input_tokens`, which leaves that out. The mask reads each byte once and keeps its state from piece to piece. It holds back
//! nothing but the object `usage`, until that ends. Generated text cannot imitate a member: inside a JSON string its quotes are
//! escaped.

use memchr::memchr;

use crate::headers::{self, Headers};
use crate::json_object::{JsonObject, ObjectError, count};
use crate::response::EVENT_STREAM;

/// The members whose numbers tell about the cache, at any depth below them. The counts of what was not cached tell as much,
/// and so do the times that engines take for these.
const MEMBERS: [&[u8]; 19] = [
    b"cached_tokens",
    b"cached_tokens_details",
    b"cache_read_input_tokens",
    b"cache_creation_input_tokens",
    b"cache_creation",
    b"prompt_cache_hit_tokens",
    b"prompt_cache_miss_tokens",
    // vLLM
    b"created_cache_tokens",
    b"cache_write_tokens",
    // llama.cpp
    b"tokens_cached",
    b"tokens_evaluated",
    b"cache_n",
    b"prompt_n",
    b"prompt_ms",
    b"prompt_per_token_ms",
    b"prompt_per_second",
    b"prompt_progress",
    // Gemini
    b"cached_content_token_count",
    b"cachedContentTokenCount",
];
/// The object with the counts of a response.
const USAGE: &[u8] = b"usage";
/// The longest [`USAGE`] that is held back, in bytes. A longer one is no engine's.
const USAGE_BYTES_MAX: usize = 4096;
/// The counts that Anthropic's API leaves out of `input_tokens`.
const APART: [&str; 2] = ["cache_read_input_tokens", "cache_creation_input_tokens"];
/// The longest name of [`MEMBERS`].
const NAME_BYTES_MAX: usize = 27;

/// The reader of one response.
#[derive(Debug, Default)]
pub struct CacheMask {
    position: Position,
    /// The text since the last quote, as far as a name may be long.
    name: [u8; NAME_BYTES_MAX],
    name_bytes: usize,
    /// The beginning of an object [`USAGE`] that has not ended.
    usage: Vec<u8>,
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
    Colon { is_usage: bool },
    /// In front of the value of a member.
    Value { is_usage: bool },
    /// In the number of a member.
    Number,
    /// Among the values below a member.
    Below { depth: u32, inner: Inner },
    /// In the object [`USAGE`].
    Usage,
}

/// The position among the values below a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inner {
    Between,
    Text,
    Escape,
    Number,
}

/// The replacement of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replacement {
    Same,
    Zero,
    Nothing,
}

impl CacheMask {
    /// A mask for a response with these headers; `None` where its body cannot be read.
    #[must_use]
    pub fn for_response(headers: &Headers) -> Option<Self> {
        let media_type = headers::media_type(headers)?;
        let has_type = headers::is_json(&media_type) || media_type == EVENT_STREAM;
        (has_type && !headers::is_encoded(headers)).then(Self::default)
    }

    /// Masks the next piece of the body, which is the last at `is_end`. Returns the piece in its place, if it differs.
    #[must_use]
    pub fn apply(&mut self, piece: &[u8], is_end: bool) -> Option<Vec<u8>> {
        let mut masked = Vec::with_capacity(piece.len());
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match self.position {
                Position::Usage => self.read_usage(rest, &mut masked),
                _ => self.read(rest, &mut masked),
            };
        }
        if is_end {
            masked.append(&mut self.usage);
        }
        (masked != piece).then_some(masked)
    }

    /// Masks text up to an object [`USAGE`]. Returns the text from there on.
    fn read<'a>(&mut self, mut rest: &'a [u8], masked: &mut Vec<u8>) -> &'a [u8] {
        loop {
            if self.position == Position::Text {
                let quote = memchr(b'"', rest).unwrap_or(rest.len());
                let (text, from_quote) = rest.split_at(quote);
                masked.extend_from_slice(text);
                rest = from_quote;
            }
            let Some((byte, behind)) = rest.split_first() else {
                return rest;
            };
            if self.position == (Position::Value { is_usage: true }) && *byte == b'{' {
                self.position = Position::Usage;
                return rest;
            }
            self.mask(*byte, masked);
            rest = behind;
        }
    }

    /// Holds back text of the object [`USAGE`], and masks it at its end. Returns the text behind it.
    fn read_usage<'a>(&mut self, rest: &'a [u8], masked: &mut Vec<u8>) -> &'a [u8] {
        let held_bytes = self.usage.len();
        let room = USAGE_BYTES_MAX.saturating_sub(held_bytes);
        self.usage.extend(rest.iter().take(room));
        let object = JsonObject::read(&self.usage);
        if object == Err(ObjectError::Cut) && self.usage.len() < USAGE_BYTES_MAX {
            return &[];
        }
        let mut usage = std::mem::take(&mut self.usage);
        usage.truncate(object.as_ref().map_or(usage.len(), |object| object.bytes));
        let read_bytes = usage.len().saturating_sub(held_bytes);
        let whole = object
            .ok()
            .and_then(|object| with_whole_input(&usage, &object));
        self.position = Position::Text;
        for byte in whole.as_deref().unwrap_or(&usage) {
            self.mask(*byte, masked);
        }
        rest.get(read_bytes..).unwrap_or_default()
    }

    fn mask(&mut self, byte: u8, masked: &mut Vec<u8>) {
        match self.step(byte) {
            Replacement::Same => masked.push(byte),
            Replacement::Zero => masked.push(b'0'),
            Replacement::Nothing => {}
        }
    }

    fn step(&mut self, byte: u8) -> Replacement {
        match (self.position, byte) {
            (Position::Name, b'"') if self.is_member() => {
                let is_usage = self.name() == USAGE;
                self.position = Position::Colon { is_usage };
            }
            (Position::Name, byte) if byte != b'"' => self.push(byte),
            (Position::Colon { .. } | Position::Value { .. }, b' ' | b'\t' | b'\r' | b'\n') => {}
            (Position::Colon { is_usage }, b':') => self.position = Position::Value { is_usage },
            (Position::Value { is_usage: false }, b'0'..=b'9') => {
                self.position = Position::Number;
                return Replacement::Zero;
            }
            (Position::Value { is_usage: false }, b'{' | b'[') => {
                let inner = Inner::Between;
                self.position = Position::Below { depth: 1, inner };
            }
            (Position::Number, byte) if is_of_number(byte) => return Replacement::Nothing,
            (Position::Below { depth, inner }, byte) => return self.step_below(depth, inner, byte),
            // A closing quote of one text may be the opening quote of the next.
            (_, b'"') => {
                self.position = Position::Name;
                self.name_bytes = 0;
            }
            _ => self.position = Position::Text,
        }
        Replacement::Same
    }

    fn step_below(&mut self, depth: u32, inner: Inner, byte: u8) -> Replacement {
        let (depth, inner, masked) = match (inner, byte) {
            (Inner::Text, b'\\') => (depth, Inner::Escape, Replacement::Same),
            (Inner::Text, b'"') => (depth, Inner::Between, Replacement::Same),
            (Inner::Text | Inner::Escape, _) => (depth, Inner::Text, Replacement::Same),
            (Inner::Number, byte) if is_of_number(byte) => (depth, inner, Replacement::Nothing),
            (_, b'0'..=b'9') => (depth, Inner::Number, Replacement::Zero),
            (_, b'"') => (depth, Inner::Text, Replacement::Same),
            (_, b'{' | b'[') => (depth.saturating_add(1), Inner::Between, Replacement::Same),
            (_, b'}' | b']') => (depth.saturating_sub(1), Inner::Between, Replacement::Same),
            _ => (depth, Inner::Between, Replacement::Same),
        };
        self.position = match depth {
            0 => Position::Text,
            depth => Position::Below { depth, inner },
        };
        masked
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

    fn name(&self) -> &[u8] {
        self.name.get(..self.name_bytes).unwrap_or_default()
    }

    fn is_member(&self) -> bool {
        self.name() == USAGE || MEMBERS.contains(&self.name())
    }
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
}

/// The text of an object [`USAGE`] with what Anthropic's API leaves out of `input_tokens`; `None` where it leaves out nothing.
fn with_whole_input(text: &[u8], object: &JsonObject) -> Option<Vec<u8>> {
    let counted = |name| object.value(text, name).and_then(count).map(u64::from);
    let apart: u64 = APART.into_iter().filter_map(counted).sum();
    let whole = counted("input_tokens")? + apart;
    let place = object.place(text, b"input_tokens")?;
    let (before, behind) = (text.get(..place.start)?, text.get(place.end..)?);
    (apart > 0).then(|| [before, whole.to_string().as_bytes(), behind].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::from_pairs;

    fn masked(body: &str, piece_bytes: usize) -> String {
        let mut mask = CacheMask::default();
        let mut bytes = Vec::new();
        let count = body.len().div_ceil(piece_bytes);
        for (number, piece) in body.as_bytes().chunks(piece_bytes).enumerate() {
            match mask.apply(piece, number + 1 == count) {
                Some(masked) => bytes.extend(masked),
                None => bytes.extend(piece),
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    /// Asserts that a cold and a warm answer look alike, wherever the pieces end.
    fn assert_alike(cold: &str, warm: &str) {
        let expected = masked(cold, cold.len());
        for piece_bytes in 1..=warm.len() {
            assert_eq!(masked(warm, piece_bytes), expected, "{piece_bytes}");
        }
    }

    #[test]
    fn the_numbers_are_hidden_wherever_the_pieces_end() {
        let body = r#"{"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":96},"completion_tokens":9,
            "cache_read_input_tokens" : 4096,"prompt_cache_hit_tokens":7,"prompt_cache_miss_tokens":113},"cached_tokens":null}"#;
        let expected = r#"{"usage":{"prompt_tokens":120,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens":9,
            "cache_read_input_tokens" : 0,"prompt_cache_hit_tokens":0,"prompt_cache_miss_tokens":0},"cached_tokens":null}"#;
        for piece_bytes in 1..=body.len() {
            assert_eq!(masked(body, piece_bytes), expected, "{piece_bytes}");
        }
    }

    #[test]
    fn a_warm_answer_of_every_engine_looks_like_a_cold_one() {
        // vLLM, chat and responses.
        assert_alike(
            r#"{"usage":{"prompt_tokens":2187,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":512}}}"#,
            r#"{"usage":{"prompt_tokens":2187,"prompt_tokens_details":{"cached_tokens":2176,"created_cache_tokens":0}}}"#,
        );
        assert_alike(
            r#"{"usage":{"input_tokens":515,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":512}}}"#,
            r#"{"usage":{"input_tokens":515,"input_tokens_details":{"cached_tokens":512,"cache_write_tokens":0}}}"#,
        );
        // llama.cpp, chat with timings, and its own API.
        assert_alike(
            r#"{"timings":{"cache_n":0,"prompt_n":609,"prompt_ms":310.25,"prompt_per_token_ms":0.5,"prompt_per_second":1962.9,"predicted_n":8}}"#,
            r#"{"timings":{"cache_n":608,"prompt_n":1,"prompt_ms":3.5e0,"prompt_per_token_ms":3.5,"prompt_per_second":285,"predicted_n":8}}"#,
        );
        assert_alike(
            r#"{"tokens_cached":0,"tokens_evaluated":609,"prompt_progress":{"total":609,"cache":0,"processed":609,"time_ms":12}}"#,
            r#"{"tokens_cached":608,"tokens_evaluated":1,"prompt_progress":{"total":609,"cache":608,"processed":1,"time_ms":0}}"#,
        );
        // SGLang.
        assert_alike(
            r#"{"meta_info":{"cached_tokens":0,"cached_tokens_details":{"device":0,"host":0,"by":[{"}":0}]},"completion_tokens":9}}"#,
            r#"{"meta_info":{"cached_tokens":999,"cached_tokens_details":{"device":936,"host":63,"by":[{"}":-1.5e3}]},"completion_tokens":9}}"#
                .replace("-1", "1")
                .as_str(),
        );
    }

    #[test]
    fn the_input_tokens_of_anthropics_api_are_the_whole_prompt() {
        let cold = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"cache_read_input_tokens\":0,\
            \"input_tokens\":606,\"cache_creation_input_tokens\":0,\"cache_creation\":{\"ephemeral_5m_input_tokens\":0},\"output_tokens\":1}}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":8}}\n\n";
        let warm = cold
            .replace("read_input_tokens\":0", "read_input_tokens\":500")
            .replace("5m_input_tokens\":0", "5m_input_tokens\":105")
            .replace("creation_input_tokens\":0", "creation_input_tokens\":105")
            .replace("\"input_tokens\":606", "\"input_tokens\":1");
        assert_alike(cold, &warm);
        assert_eq!(masked(cold, 9), cold);
        assert_alike(
            r#"{"usage":{"input_tokens":12,"cache_read_input_tokens":0}}"#,
            r#"{"usage":{"input_tokens":5,"cache_read_input_tokens":7}}"#,
        );
    }

    #[test]
    fn text_that_names_a_member_stays() {
        for body in [
            r#"{"content":"\"cached_tokens\":96 and \"cached_tokens\": 5 and \"usage\":{\"cached_tokens\":1"}"#,
            r#"{"content":"cached_tokens: 96","n":7}"#,
            r#"{"my_cached_tokens":7,"cached_tokens_total":8,"cached_tokens":"9"}"#,
            r#"["cached_tokens",96,"cached_tokens" 7]"#,
            r#"{"usage":null,"usage":{"type":"object","properties":{"n":7}}}"#,
            r#"{"usage":{"prompt_tokens":7"#,
        ] {
            for piece_bytes in [1, 5, body.len()] {
                assert_eq!(masked(body, piece_bytes), body);
            }
        }
    }

    #[test]
    fn an_object_that_is_too_long_to_be_held_is_masked_all_the_same() {
        for filler in [
            0,
            USAGE_BYTES_MAX - 30,
            USAGE_BYTES_MAX,
            3 * USAGE_BYTES_MAX,
        ] {
            let body = format!(
                r#"{{"usage":{{"x":"{}","cached_tokens":123,"cached_tokens":456}}}}"#,
                "x".repeat(filler)
            );
            let expected = body.replace("123", "0").replace("456", "0");
            for piece_bytes in [7, 1000, body.len()] {
                assert_eq!(masked(&body, piece_bytes), expected, "{filler}");
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
