//! Finds `usage`, the token counts of an engine, in its response.
//!
//! The filter does not parse the response. It searches for the key of the object: backwards in the tail of a stream, and
//! anywhere in a whole response. Each count is read by itself, so an odd one costs no other. Generated text cannot imitate the key: inside a JSON string the quotes around `usage` are escaped, so `"usage"` followed by `:{` is always a
//! real member. That holds in plain JSON and in server-sent events, without the beginning of the response or an event parser.
//!
//! | API | object | prompt | cached | output |
//! | --- | --- | --- | --- | --- |
//! | chat, completions, embeddings | `usage` | `prompt_tokens` | `prompt_tokens_details.cached_tokens` | `completion_tokens` |
//! | responses | `usage` | `input_tokens` | `input_tokens_details.cached_tokens` | `output_tokens` |
//! | messages | `usage` | `input_tokens` and the two cache counts | `cache_read_input_tokens` | `output_tokens` |
//! | SGLang's own | `meta_info` | `prompt_tokens` | `cached_tokens` | `completion_tokens` |

use memchr::memmem;

use crate::json_object::{JsonObject, ObjectError, count};

/// The token counts of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: Option<u32>,
    pub(super) cached_tokens: Option<u32>,
    pub(super) completion_tokens: Option<u32>,
}

/// The keys of the objects with the counts.
const KEYS: [&[u8]; 2] = [br#""usage""#, br#""meta_info""#];
/// The longest object that is kept until its end, in bytes.
const OBJECT_BYTES_MAX: usize = 4 * 1024;

/// Finds the token counts anywhere in a whole response: vLLM writes the ids and the logarithms of a whole prompt behind them.
///
/// The scanner reads each byte once. It keeps the beginning of a key or of an object that a piece cuts.
#[derive(Clone, Debug, Default)]
pub(super) struct UsageScanner {
    found: Option<Usage>,
    cut: Vec<u8>,
}

impl UsageScanner {
    /// Reads the next piece of the response.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        if self.cut.is_empty() {
            self.scan(piece);
            return;
        }
        let mut text = std::mem::take(&mut self.cut);
        text.extend_from_slice(piece);
        self.scan(&text);
    }

    /// The counts so far.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.found
    }

    fn scan(&mut self, text: &[u8]) {
        let mut kept_from = text.len();
        for key in KEYS {
            let mut at = 0;
            while let Some(from) = text.get(at..).and_then(|rest| memmem::find(rest, key)) {
                let start = at + from;
                at = start + key.len();
                match read_object(text.get(at..).unwrap_or_default()) {
                    Ok(usage) => {
                        self.found = Some(usage.or(self.found.unwrap_or_default()));
                    }
                    Err(ObjectError::Cut) if text.len() - start < OBJECT_BYTES_MAX => {
                        kept_from = kept_from.min(start);
                        break;
                    }
                    Err(_) => {}
                }
            }
            let cut_bytes = (1..key.len())
                .rev()
                .find(|bytes| key.get(..*bytes).is_some_and(|start| text.ends_with(start)));
            kept_from = kept_from.min(text.len() - cut_bytes.unwrap_or(0));
        }
        self.cut
            .extend_from_slice(text.get(kept_from..).unwrap_or_default());
    }
}

/// Finds the token counts at the end of a response.
///
/// The last object counts. Objects before it supply the counts that it lacks: a stream of Anthropic's API reports the prompt
/// at its start and the output at its end.
pub(super) fn find(tail: &[u8]) -> Option<Usage> {
    let mut found: Option<Usage> = None;
    for key in KEYS {
        let mut rest = tail;
        while let Some(at) = memmem::rfind(rest, key) {
            let (before, from_key) = rest.split_at(at);
            rest = before;
            let Ok(usage) = read_object(from_key.get(key.len()..).unwrap_or_default()) else {
                continue;
            };
            let merged = found.map_or(usage, |later| later.or(usage));
            found = Some(merged);
            if merged.is_complete() {
                return found;
            }
        }
    }
    found
}

impl Usage {
    /// Fills missing prompt counts from an earlier part of the response, whose output count is stale.
    pub(super) fn with_prompt_of(self, earlier: Option<Self>) -> Self {
        self.or(Self {
            completion_tokens: None,
            ..earlier.unwrap_or_default()
        })
    }

    fn or(self, earlier: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens.or(earlier.prompt_tokens),
            cached_tokens: self.cached_tokens.or(earlier.cached_tokens),
            completion_tokens: self.completion_tokens.or(earlier.completion_tokens),
        }
    }

    fn is_complete(&self) -> bool {
        self.prompt_tokens.is_some() && self.completion_tokens.is_some()
    }
}

/// Reads `:{...}` and ignores the text after it.
fn read_object(text: &[u8]) -> Result<Usage, ObjectError> {
    let object = match text.trim_ascii_start() {
        [] => return Err(ObjectError::Cut),
        [b':', object @ ..] => object,
        _ => return Err(ObjectError::Malformed),
    };
    let usage = counts(object, &JsonObject::read(object)?);
    if usage == Usage::default() {
        return Err(ObjectError::Malformed);
    }
    Ok(usage)
}

/// The counts of an object, by their names in every API. A member that is no count counts as absent.
fn counts(text: &[u8], object: &JsonObject) -> Usage {
    let counted = |name| object.value(text, name).and_then(count);
    let in_details = |name| {
        let details = object.value(text, name)?;
        let object = JsonObject::read(details).ok()?;
        object.value(details, "cached_tokens").and_then(count)
    };
    let read = counted("cache_read_input_tokens");
    // Anthropic's API excludes cache reads and cache writes from `input_tokens`.
    let apart = read
        .unwrap_or(0)
        .saturating_add(counted("cache_creation_input_tokens").unwrap_or(0));
    let input = || counted("input_tokens").map(|tokens| tokens.saturating_add(apart));
    Usage {
        prompt_tokens: counted("prompt_tokens").or_else(input),
        cached_tokens: in_details("prompt_tokens_details")
            .or_else(|| in_details("input_tokens_details"))
            .or_else(|| counted("cached_tokens"))
            .or(read),
        completion_tokens: counted("completion_tokens").or_else(|| counted("output_tokens")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(prompt: u32, cached: Option<u32>, completion: Option<u32>) -> Option<Usage> {
        Some(Usage {
            prompt_tokens: Some(prompt),
            cached_tokens: cached,
            completion_tokens: completion,
        })
    }

    #[test]
    fn a_plain_chat_response_has_usage() {
        let tail = br#"..."content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":120,"total_tokens":130,
            "completion_tokens":10,"prompt_tokens_details":{"cached_tokens":96}},"prompt_logprobs":null}"#;
        assert_eq!(find(tail), usage(120, Some(96), Some(10)));
    }

    #[test]
    fn the_last_event_of_a_stream_has_usage() {
        let tail = b"data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}],\"usage\":null}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
        assert_eq!(find(tail), usage(5, None, Some(2)));
    }

    #[test]
    fn the_responses_api_names_input_and_output_tokens() {
        let tail = br#"data: {"type":"response.completed","response":{"usage":{"input_tokens":40,
            "input_tokens_details":{"cached_tokens":32},"output_tokens":7,"total_tokens":47},"user":null}}"#;
        assert_eq!(find(tail), usage(40, Some(32), Some(7)));
    }

    #[test]
    fn the_messages_api_splits_its_counts() {
        let tail = b"data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":10,\
            \"cache_read_input_tokens\":80,\"cache_creation_input_tokens\":10,\"output_tokens\":1}}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":25}}\n\n";
        assert_eq!(find(tail), usage(100, Some(80), Some(25)));
    }

    #[test]
    fn the_native_api_of_sglang_uses_meta_info() {
        let tail =
            br#"{"text":"hi","meta_info":{"id":"1","finish_reason":{"type":"length","length":8},
            "prompt_tokens":9,"completion_tokens":8,"cached_tokens":4,"e2e_latency":0.2}}"#;
        assert_eq!(find(tail), usage(9, Some(4), Some(8)));
    }

    #[test]
    fn embeddings_have_no_output_tokens() {
        assert_eq!(
            find(br#"],"usage":{"prompt_tokens":3,"total_tokens":3}}"#),
            usage(3, None, None)
        );
    }

    #[test]
    fn generated_text_cannot_imitate_usage() {
        let tail =
            br#"{"content":"\"usage\":{\"prompt_tokens\":999,\"completion_tokens\":1} usage:{}"}"#;
        assert_eq!(find(tail), None);
        let tail = br#"{"usage":{"prompt_tokens":1,"completion_tokens":1},"x":"\"usage\":{\"prompt_tokens\":999}"}"#;
        assert_eq!(find(tail), usage(1, None, Some(1)));
    }

    #[test]
    fn an_odd_member_costs_no_other() {
        for (odd, expected) in [
            (
                r#""prompt_tokens":1024.0,"completion_tokens":8"#,
                usage(1024, None, Some(8)),
            ),
            (
                r#""prompt_tokens":1.024e3,"completion_tokens":8.0"#,
                usage(1024, None, Some(8)),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":0"#,
                usage(9, None, Some(8)),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":[]"#,
                usage(9, None, Some(8)),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":8,"input_tokens_details":"x""#,
                usage(9, None, Some(8)),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":-1}"#,
                usage(9, None, Some(8)),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":8,"prompt_tokens_details":{"audio_tokens":{},"cached_tokens":4}"#,
                usage(9, Some(4), Some(8)),
            ),
            (
                r#""prompt_tokens":7,"prompt_tokens":9,"completion_tokens":8"#,
                usage(9, None, Some(8)),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":-1"#,
                usage(9, None, None),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":7.5"#,
                usage(9, None, None),
            ),
            (
                r#""prompt_tokens":9,"completion_tokens":8,"cost":NaN,"n":1e999"#,
                usage(9, None, Some(8)),
            ),
        ] {
            let body = format!(r#"{{"usage":{{{odd}}},"x":1}}"#);
            assert_eq!(find(body.as_bytes()), expected, "{odd}");
            let mut scanner = UsageScanner::default();
            scanner.feed(body.as_bytes());
            assert_eq!(scanner.usage(), expected, "{odd}");
        }
    }

    #[test]
    fn usage_anywhere_in_a_whole_response_is_found() {
        let tools = r#"{"tools":[{"properties":{"usage":{"type":"string"},"x":"\"usage\":{\"prompt_tokens\":5}"}}],"#;
        let counts = r#""usage" : {"prompt_tokens":4009,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64}}"#;
        let ids = format!(r#","prompt_token_ids":[{}1]}}"#, "12345,".repeat(20_000));
        let body = [tools, counts, &ids].concat();
        for piece_bytes in [1, 3, 7, 100, 9000, body.len()] {
            let mut scanner = UsageScanner::default();
            for piece in body.as_bytes().chunks(piece_bytes) {
                scanner.feed(piece);
                assert!(scanner.cut.len() <= OBJECT_BYTES_MAX);
            }
            assert_eq!(
                scanner.usage(),
                usage(4009, Some(64), Some(3)),
                "{piece_bytes}"
            );
        }
        let mut endless = UsageScanner::default();
        endless.feed(br#"{"usage":{"x":""#);
        for _ in 0..100 {
            endless.feed(&[b'x'; 1000]);
            assert!(endless.cut.len() <= OBJECT_BYTES_MAX);
        }
        endless.feed(br#""}},"usage":{"prompt_tokens":1}"#);
        assert_eq!(endless.usage(), usage(1, None, None));
    }

    #[test]
    fn truncated_and_malformed_objects_are_not_found() {
        for tail in [
            "",
            "\"usage\"",
            "\"usage\":",
            "\"usage\":{\"prompt_tokens\":1",
            "\"usage\":{\"prompt_tokens\":-1}",
            "\"usage\":{\"prompt_tokens\":\"1\"}",
            "\"usage\":{}",
            "\"usage\":[1]",
            "_tokens\":7,\"completion_tokens\":8}}",
        ] {
            assert_eq!(find(tail.as_bytes()), None, "{tail}");
        }
    }

    proptest! {
        #[test]
        fn the_last_whole_object_counts_after_any_bytes(
            before in prop::collection::vec(any::<u8>(), 0..300),
            prompt in any::<u32>(),
            completion in any::<u32>(),
            after in "[^\"]{0,50}",
        ) {
            let mut tail = before;
            tail.extend(
                format!("\"usage\" : {{\"prompt_tokens\":{prompt},\"x\":[{{}}],\"completion_tokens\":{completion}}}{after}")
                    .bytes(),
            );
            prop_assert_eq!(find(&tail), usage(prompt, None, Some(completion)));
        }
    }
}
