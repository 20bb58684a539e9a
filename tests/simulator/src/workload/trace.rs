//! Traces in Mooncake's format (FAST '25): one JSON object a line, with `timestamp` (ms), `input_length` and
//! `output_length` (tokens), and `hash_ids`: one id for each 512 tokens of the prompt, equal ids for equal text up to there.
//!
//! `isotherm record` writes the same with more: `pieces` (the prompt as `[id, tokens]`, finer than blocks of 512), `answer`
//! (the id by which later prompts repeat the answer), `session` and `region`. What is missing is made up for: a prompt is
//! its blocks, an answer is repeated by nobody, and a request that continues an earlier one past what several sessions share
//! is of that one's session.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::BufRead;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::prompt::{Piece, Prompt};

/// Tokens that one of `hash_ids` stands for.
pub const BLOCK_TOKENS: u32 = 512;
/// Requests of a trace at most; of a longer one the first so many have to be asked for.
pub const REQUESTS_MAX: usize = 2_000_000;

/// One request of a trace.
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
    /// Its session.
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

/// Why a trace cannot be read.
#[derive(Debug)]
pub enum TraceError {
    /// It cannot be read at all.
    Io(std::io::Error),
    /// A line is wrong.
    Line {
        /// Which one, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// It has no requests.
    Empty,
    /// It has more than [`REQUESTS_MAX`].
    TooLong,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Line { line, reason } => write!(
                f,
                "line {line}: {reason}; a line is like \
                 {{\"timestamp\": 27, \"input_length\": 700, \"output_length\": 120, \"hash_ids\": [81, 12]}}, with one id \
                 for each {BLOCK_TOKENS} tokens of the prompt"
            ),
            Self::Empty => write!(f, "there is no request in it"),
            Self::TooLong => write!(
                f,
                "there are more than {REQUESTS_MAX} requests in it; ask for the first ones with --first"
            ),
        }
    }
}

impl core::error::Error for TraceError {}

impl Trace {
    /// A trace of these requests.
    #[must_use]
    pub fn new(mut lines: Vec<TraceLine>) -> Self {
        lines.sort_by(|a, b| a.timestamp.total_cmp(&b.timestamp));
        Self { lines }
    }

    /// Reads a trace, or the first so many requests of it.
    ///
    /// # Errors
    /// It cannot be read, a line is wrong, there is none, or there are too many.
    pub fn read(from: impl BufRead, first: Option<usize>) -> Result<Self, TraceError> {
        let mut lines = Vec::new();
        for (number, line) in from.lines().enumerate() {
            if first.is_some_and(|first| lines.len() >= first) {
                break;
            }
            let line = line.map_err(TraceError::Io)?;
            if line.trim().is_empty() {
                continue;
            }
            if lines.len() >= REQUESTS_MAX {
                return Err(TraceError::TooLong);
            }
            let parsed = parse(&line).map_err(|reason| TraceError::Line {
                line: number + 1,
                reason,
            })?;
            lines.push(parsed);
        }
        if lines.is_empty() {
            return Err(TraceError::Empty);
        }
        Ok(Self::new(lines))
    }

    /// Its requests.
    #[must_use]
    pub fn lines(&self) -> &[TraceLine] {
        &self.lines
    }

    /// The names of its regions, in order; none, if it does not tell.
    #[must_use]
    pub fn regions(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self
            .lines
            .iter()
            .filter_map(|line| line.region.as_ref())
            .collect();
        names.into_iter().cloned().collect()
    }

    /// The session of each line: what it says, or what its blocks suggest.
    #[must_use]
    pub fn sessions(&self) -> Vec<u64> {
        let common = self.common_blocks();
        let mut named: BTreeMap<u64, u64> = BTreeMap::new();
        let mut owners: HashMap<u64, u64> = HashMap::new();
        let mut sessions = Vec::with_capacity(self.lines.len());
        for (index, line) in self.lines.iter().enumerate() {
            let own = || line.hash_ids.iter().filter(|id| !common.contains(*id));
            let session = line.session.map_or_else(
                || {
                    own()
                        .rev()
                        .find_map(|id| owners.get(id))
                        .copied()
                        .unwrap_or(index as u64)
                },
                |name| *named.entry(name).or_insert(index as u64),
            );
            for id in own() {
                owners.entry(*id).or_insert(session);
            }
            sessions.push(session);
        }
        sessions
    }

    /// Blocks that many texts continue: system prompts and the like, which say nothing about sessions.
    fn common_blocks(&self) -> HashSet<u64> {
        let mut next: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        for line in &self.lines {
            for (block, after) in line.hash_ids.iter().zip(line.hash_ids.iter().skip(1)) {
                let known = next.entry(*block).or_default();
                if known.len() <= CONTINUATIONS_MAX {
                    known.insert(*after);
                }
            }
        }
        next.into_iter()
            .filter(|(_, after)| after.len() > CONTINUATIONS_MAX)
            .map(|(block, _)| block)
            .collect()
    }
}

/// A conversation goes on from one block in so many ways at most: now and then somebody changes the last message.
const CONTINUATIONS_MAX: usize = 3;

impl TraceLine {
    /// Its prompt, no longer than this.
    #[must_use]
    pub fn prompt(&self, tokens_max: u32) -> Prompt {
        let mut left = self.input_length.min(tokens_max);
        let blocks = self.hash_ids.iter().map(|id| (*id, BLOCK_TOKENS));
        let pieces = self.pieces.iter().copied();
        let whole: Vec<(u64, u32)> = if self.pieces.is_empty() {
            blocks.collect()
        } else {
            pieces.collect()
        };
        Prompt::new(whole.into_iter().map(|(id, tokens)| {
            let tokens = tokens.min(left);
            left -= tokens;
            Piece { id, tokens }
        }))
    }
}

fn parse(text: &str) -> Result<TraceLine, String> {
    let line: TraceLine = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if !line.timestamp.is_finite() || line.timestamp < 0.0 {
        return Err(format!("a timestamp of {}", line.timestamp));
    }
    if line.input_length == 0 {
        return Err("a prompt of no tokens".to_owned());
    }
    let input = u64::from(line.input_length);
    if line.pieces.is_empty() {
        let held = line.hash_ids.len() as u64 * u64::from(BLOCK_TOKENS);
        if input > held {
            return Err(format!("a prompt of {input} tokens in blocks for {held}"));
        }
    } else {
        let sum: u64 = line
            .pieces
            .iter()
            .map(|(_, tokens)| u64::from(*tokens))
            .sum();
        if input != sum {
            return Err(format!("a prompt of {input} tokens in pieces of {sum}"));
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"timestamp": 2000, "input_length": 1400, "output_length": 6, "hash_ids": [0, 3, 4]}
{"timestamp": 1000, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]}

{"timestamp": 5000, "input_length": 2048, "output_length": 7, "hash_ids": [0, 3, 4, 5]}
"#;

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(text.as_bytes(), None)
    }

    #[test]
    fn prompts_are_their_blocks_cut_to_their_length_and_to_the_cap() {
        let trace = read(TRACE).unwrap();
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
    fn who_continues_a_conversation_is_of_its_session() {
        let line = |ids: &str| {
            format!(
                "{{\"timestamp\": 0, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [{ids}]}}\n"
            )
        };
        let text: String = [
            "0, 1, 2",
            "0, 3, 4",
            "0, 5",
            "0, 6",
            "0, 3, 4, 7",
            "0, 1, 8",
            "0",
        ]
        .map(line)
        .concat();
        let sessions = read(&text).unwrap().sessions();
        // Five texts go on from the first block, so that it is nobody's.
        assert_eq!(sessions, [0, 1, 2, 3, 1, 0, 6]);
    }

    #[test]
    fn what_isotherm_records_is_read_whole() {
        let text = r#"{"timestamp": 27, "input_length": 700, "output_length": 120, "hash_ids": [81, 12], "pieces": [[4711, 64], [815, 636]], "answer": 77, "session": 5, "region": "eu", "output_estimated": true}"#;
        let trace = read(text).unwrap();
        let [line] = trace.lines() else {
            panic!("one line")
        };
        assert_eq!(
            line.prompt(u32::MAX).pieces()[0],
            Piece {
                id: 4711,
                tokens: 64
            }
        );
        assert_eq!((line.answer, line.session), (Some(77), Some(5)));
        assert_eq!(trace.regions(), ["eu"]);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let wrong = format!(
            "{TRACE}{}",
            r#"{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0]}"#
        );
        let error = read(&wrong).unwrap_err().to_string();
        assert!(
            error.starts_with("line 5: a prompt of 900 tokens in blocks for 512; a line is like"),
            "{error}"
        );
        assert!(matches!(read(""), Err(TraceError::Empty)));
        let pieces =
            r#"{"timestamp": 0, "input_length": 9, "output_length": 5, "pieces": [[1, 8]]}"#;
        assert!(
            read(pieces)
                .unwrap_err()
                .to_string()
                .contains("in pieces of 8")
        );
    }

    #[test]
    fn only_as_many_as_asked_for_are_read() {
        assert_eq!(
            Trace::read(TRACE.as_bytes(), Some(2))
                .unwrap()
                .lines()
                .len(),
            2
        );
    }
}
