//! Finds `usage`, the token counts of an engine, at the end of its response.
//!
//! The filter does not parse the response. It searches the tail backwards for the key of the object. Generated text cannot
//! imitate the key: inside a JSON string the quotes around `usage` are escaped, so `"usage"` followed by `:{` is always a
//! real member. That holds in plain JSON and in server-sent events, without the beginning of the response or an event parser.
//!
//! | API | object | prompt | cached | output |
//! | --- | --- | --- | --- | --- |
//! | chat, completions, embeddings | `usage` | `prompt_tokens` | `prompt_tokens_details.cached_tokens` | `completion_tokens` |
//! | responses | `usage` | `input_tokens` | `input_tokens_details.cached_tokens` | `output_tokens` |
//! | messages | `usage` | `input_tokens` and the two cache counts | `cache_read_input_tokens` | `output_tokens` |
//! | SGLang's own | `meta_info` | `prompt_tokens` | `cached_tokens` | `completion_tokens` |

use memchr::memmem;
use serde::Deserialize;

/// The token counts of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: Option<u32>,
    pub(super) cached_tokens: Option<u32>,
    pub(super) completion_tokens: Option<u32>,
}

/// Finds the token counts at the end of a response.
///
/// The last object counts. Objects before it supply the counts that it lacks: a stream of Anthropic's API reports the prompt
/// at its start and the output at its end.
pub(super) fn find(tail: &[u8]) -> Option<Usage> {
    let mut found: Option<Usage> = None;
    for key in [br#""usage""#.as_slice(), br#""meta_info""#] {
        let mut rest = tail;
        while let Some(at) = memmem::rfind(rest, key) {
            let (before, from_key) = rest.split_at(at);
            rest = before;
            let Some(usage) = from_key.get(key.len()..).and_then(read_object) else {
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

/// Parses `:{...}` and ignores the text after it.
fn read_object(text: &[u8]) -> Option<Usage> {
    let object = text.trim_ascii_start().strip_prefix(b":")?;
    let mut values = serde_json::Deserializer::from_slice(object).into_iter::<RawUsage>();
    let raw = values.next()?.ok()?;
    let usage = raw.counts();
    (usage != Usage::default()).then_some(usage)
}

/// The names of the counts in every API.
#[derive(Deserialize)]
struct RawUsage {
    prompt_tokens: Option<u32>,
    input_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    output_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    cache_read_input_tokens: Option<u32>,
    cache_creation_input_tokens: Option<u32>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

impl RawUsage {
    fn counts(self) -> Usage {
        let details = self.prompt_tokens_details.or(self.input_tokens_details);
        let cached = details
            .and_then(|details| details.cached_tokens)
            .or(self.cached_tokens)
            .or(self.cache_read_input_tokens);
        // Anthropic's API excludes cache reads and cache writes from `input_tokens`.
        let apart = self
            .cache_read_input_tokens
            .unwrap_or(0)
            .saturating_add(self.cache_creation_input_tokens.unwrap_or(0));
        Usage {
            prompt_tokens: self
                .prompt_tokens
                .or_else(|| self.input_tokens.map(|tokens| tokens.saturating_add(apart))),
            cached_tokens: cached,
            completion_tokens: self.completion_tokens.or(self.output_tokens),
        }
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
