//! Replays a trace in the format of Mooncake (FAST '25): one JSON object a line, with `timestamp` (ms),
//! `input_length`, `output_length` (tokens) and `hash_ids` (one id for each 512 tokens of the prompt; equal ids mean
//! equal text up to there).
//!
//! The trace has no text and no sessions. Text is made from the ids alone, so that prompts share exactly what they
//! shared. A request that continues an earlier one past what everybody shares is taken to be of the same session.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::{Answer, Content, Conversation, Pacing, Turn, Workload};

/// Tokens that one id stands for.
const BLOCK_TOKENS: u32 = 512;
/// A conversation goes on from one block in so many ways at most: now and then somebody changes the last message.
const CONTINUATIONS_MAX: usize = 3;

/// A parsed trace.
#[derive(Clone, Debug)]
pub struct Trace {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// A line that is not of this format.
#[derive(Debug)]
pub struct TraceError {
    line: usize,
    reason: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: {}", self.line, self.reason)
    }
}

impl std::error::Error for TraceError {}

impl Trace {
    /// Parses the first `requests` lines.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str, requests: usize) -> Result<Self, TraceError> {
        let mut lines = Vec::new();
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
            .take(requests)
        {
            let error = |reason: String| TraceError {
                line: index + 1,
                reason,
            };
            let parsed: Line =
                serde_json::from_str(line).map_err(|reason| error(reason.to_string()))?;
            let held = parsed.hash_ids.len() as u64 * u64::from(BLOCK_TOKENS);
            if u64::from(parsed.input_length) > held {
                return Err(error(format!(
                    "{} tokens in blocks for {held}",
                    parsed.input_length
                )));
            }
            if !parsed.timestamp.is_finite() || parsed.timestamp < 0.0 {
                return Err(error(format!("a timestamp of {}", parsed.timestamp)));
            }
            lines.push(parsed);
        }
        if lines.is_empty() {
            return Err(TraceError {
                line: 1,
                reason: "the trace is empty".into(),
            });
        }
        Ok(Self { lines })
    }

    /// The longest prompt with its answer, tokens: what an engine must be able to take.
    #[must_use]
    pub fn context_tokens_max(&self) -> u32 {
        self.lines
            .iter()
            .map(|line| line.input_length.saturating_add(line.output_length))
            .max()
            .unwrap_or(0)
    }

    /// The requests at their times, `speedup` times as fast.
    #[must_use]
    pub fn workload(&self, speedup: f64) -> Workload {
        let start = self.lines.first().map_or(0.0, |line| line.timestamp);
        let sessions = sessions(&self.lines);
        let conversations: Vec<Conversation> = self
            .lines
            .iter()
            .zip(sessions)
            .map(|(line, session)| Conversation {
                session: format!("session-{session}"),
                at: Duration::from_secs_f64((line.timestamp - start).max(0.0) / 1_000.0 / speedup),
                system: None,
                turns: vec![Turn {
                    think: Duration::ZERO,
                    content: Content::Blocks {
                        ids: line.hash_ids.clone(),
                        block_tokens: BLOCK_TOKENS,
                        tokens: line.input_length,
                    },
                    answer: Answer::Exactly(line.output_length.max(1)),
                }],
            })
            .collect();
        let last = conversations
            .last()
            .map_or(Duration::ZERO, |conversation| conversation.at);
        Workload {
            name: "trace".into(),
            description: format!(
                "{} requests of a recorded trace, {:.0} s of it replayed {speedup} times as fast",
                conversations.len(),
                last.as_secs_f64() * speedup,
            ),
            pacing: Pacing::Open,
            conversations,
        }
    }
}

/// A number for the session of each line.
fn sessions(lines: &[Line]) -> Vec<usize> {
    let common = common_blocks(lines);
    // Block -> the session that used it first.
    let mut owners: HashMap<u64, usize> = HashMap::new();
    let mut numbers = Vec::with_capacity(lines.len());
    for (index, line) in lines.iter().enumerate() {
        let own = || line.hash_ids.iter().filter(|id| !common.contains(*id));
        let session = own().rev().find_map(|id| owners.get(id)).copied();
        let session = session.unwrap_or(index);
        for id in own() {
            owners.entry(*id).or_insert(session);
        }
        numbers.push(session);
    }
    numbers
}

/// Blocks that many texts continue: a common system prompt and the like, which is no sign of a session.
fn common_blocks(lines: &[Line]) -> HashSet<u64> {
    let mut next: HashMap<u64, HashSet<u64>> = HashMap::new();
    for line in lines {
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

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"timestamp": 1000, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 2000, "input_length": 1400, "output_length": 6, "hash_ids": [0, 3, 4]}

{"timestamp": 5000, "input_length": 2048, "output_length": 7, "hash_ids": [0, 3, 4, 5]}
"#;

    #[test]
    fn text_follows_from_the_ids_and_is_cut_to_the_length() {
        let workload = Trace::parse(TRACE, 10).unwrap().workload(2.0);
        let text: Vec<String> = workload
            .conversations
            .iter()
            .map(|conversation| conversation.turns[0].content.render())
            .collect();
        assert_eq!(text[0].len(), 6_000);
        assert_eq!(text[0][..2_048], text[1][..2_048], "the same first block");
        assert!(
            text[2].starts_with(&text[1]),
            "the third continues the second"
        );
        assert_ne!(text[0][2_048..4_096], text[1][2_048..4_096]);
        assert_eq!(workload.conversations[2].at, Duration::from_secs(2));
    }

    #[test]
    fn who_continues_a_conversation_is_of_its_session() {
        let trace = Trace::parse(TRACE, 10).unwrap();
        assert_eq!(sessions(&trace.lines)[1], sessions(&trace.lines)[2]);
        assert_eq!(trace.context_tokens_max(), 2_055);
    }

    #[test]
    fn a_common_system_prompt_makes_nobody_one_session() {
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
        let trace = Trace::parse(&text, 10).unwrap();
        assert_eq!(sessions(&trace.lines), [0, 1, 2, 3, 1, 0, 6]);
    }

    #[test]
    fn only_as_many_lines_as_asked_for_are_read() {
        assert_eq!(Trace::parse(TRACE, 2).unwrap().lines.len(), 2);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let wrong = r#"{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0]}"#;
        let error = Trace::parse(wrong, 10).unwrap_err().to_string();
        assert_eq!(error, "line 1 of the trace: 900 tokens in blocks for 512");
        assert!(Trace::parse("{}", 10).is_err() && Trace::parse("", 10).is_err());
    }
}
