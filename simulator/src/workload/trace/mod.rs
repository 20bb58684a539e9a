//! Traces in Mooncake's format (FAST '25): one JSON object a line, with `timestamp` (ms), `input_length` and
//! `output_length` (tokens), and `hash_ids`: one id for each 512 tokens of the prompt, equal ids for equal text up to there.
//!
//! `isotherm record` adds `pieces` (the prompt as `[id, tokens]`, finer than blocks of 512), `answer` (the id by which later
//! prompts repeat the answer), `session` and `region`. Without them a prompt is its blocks, no request repeats a response, and
//! a request that continues an earlier one past the blocks of several sessions belongs to the session of that request.

mod read;
mod sessions;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::prompt::{Piece, Prompt};

/// Tokens that one of `hash_ids` stands for.
pub const BLOCK_TOKENS: u32 = 512;

/// A request of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceLine {
    /// When it came, ms.
    pub timestamp: f64,
    /// The length of its prompt, tokens.
    pub input_length: u32,
    /// The length of its answer, tokens.
    pub output_length: u32,
    /// An id for each [`BLOCK_TOKENS`] of the prompt.
    #[serde(default)]
    pub hash_ids: Vec<u64>,
    /// The prompt as ids and lengths; goes before `hash_ids`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<(u64, u32)>,
    /// The id of its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<u64>,
    /// Session of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The region that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// A trace, in the order of its timestamps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    lines: Vec<TraceLine>,
}

impl Trace {
    /// A trace of these requests.
    pub fn new(mut lines: Vec<TraceLine>) -> Self {
        lines.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
        Self { lines }
    }

    /// Requests of the trace.
    pub fn lines(&self) -> &[TraceLine] {
        &self.lines
    }

    /// The names of its regions, in order; none, if it does not tell.
    pub fn regions(&self) -> Vec<String> {
        let names = self.lines.iter().filter_map(|line| line.region.as_ref());
        let names: BTreeSet<&String> = names.collect();
        names.into_iter().cloned().collect()
    }
}

impl TraceLine {
    /// Prompt of the request, cut at `tokens_max`.
    pub fn prompt(&self, tokens_max: u32) -> Prompt {
        let mut left = self.input_length.min(tokens_max);
        let blocks = self.hash_ids.iter().map(|id| (*id, BLOCK_TOKENS));
        let blocks = blocks.filter(|_| self.pieces.is_empty());
        let pieces = self.pieces.iter().copied();
        Prompt::new(pieces.chain(blocks).map(|(id, tokens)| {
            let tokens = tokens.min(left);
            left -= tokens;
            Piece::new(id, tokens)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const TRACE: &str = r#"{"timestamp": 2000, "input_length": 1400, "output_length": 6, "hash_ids": [0, 3, 4]}
{"timestamp": 1000, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]}

{"timestamp": 5000, "input_length": 2048, "output_length": 7, "hash_ids": [0, 3, 4, 5]}
"#;

    #[test]
    fn prompts_are_their_blocks_cut_to_their_length_and_to_the_cap() {
        let trace = Trace::read(TRACE.as_bytes(), None).unwrap();
        let [first, second, third] = trace.lines() else {
            panic!("three lines");
        };
        assert_eq!(first.timestamp, 1_000.0, "in order of time");
        assert_eq!(first.prompt(u32::MAX).tokens(), 1_500);
        assert_eq!(third.prompt(1_000).tokens(), 1_000);
        let (second, third) = (second.prompt(u32::MAX), third.prompt(u32::MAX));
        assert_eq!(second.pieces()[..2], third.pieces()[..2]);
        assert_eq!(second.pieces()[2].tokens, 1_400 - 1_024);
    }

    #[test]
    fn recordings_of_the_service_are_read_whole() {
        let text = r#"{"timestamp": 27, "input_length": 700, "output_length": 120, "hash_ids": [81, 12], "pieces": [[4711, 64], [815, 636]], "answer": 77, "session": 5, "region": "eu", "output_estimated": true}"#;
        let trace = Trace::read(text.as_bytes(), None).unwrap();
        let [line] = trace.lines() else {
            panic!("one line")
        };
        assert_eq!(line.prompt(u32::MAX).pieces()[0], Piece::new(4711, 64));
        assert_eq!((line.answer, line.session), (Some(77), Some(5)));
        assert_eq!(trace.regions(), ["eu"]);
    }
}
