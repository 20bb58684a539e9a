//! Recorded traffic as a workload.
//!
//! The simulator's own reader ([`isotherm_simulator::workload::trace`]) reads, cuts and times a trace, so that the real system
//! and the simulator get the same requests. A trace has ids instead of text; equal ids give equal text.

use std::time::Duration;

use isotherm_simulator::workload::replay::{PlaybackRate, Replay};
use isotherm_simulator::workload::trace::Trace;
use isotherm_simulator::workload::{Session, Step};

use super::{Content, Conversation, LoadModel, OutputLength, Turn, Workload};

impl Workload {
    /// The requests of a trace at their times, `speedup` times as fast.
    #[must_use]
    pub fn replay(trace: &Trace, speedup: f64) -> Self {
        let replay = Replay {
            pace: PlaybackRate::SpeedUp(speedup),
            ..Replay::default()
        };
        let conversations = conversations(&replay.workload("trace", trace).sessions);
        let last = conversations.last();
        let span = last.map_or(Duration::ZERO, |conversation| conversation.at);
        Self {
            name: "trace".into(),
            description: format!(
                "{} requests of a recorded trace, {:.0} s of it replayed {speedup} times as fast",
                conversations.len(),
                span.as_secs_f64() * speedup,
            ),
            load_model: LoadModel::Open,
            conversations,
        }
    }
}

/// The sessions of a trace. Each has one request: only the key tells which requests belong to one conversation.
pub(crate) fn conversations(sessions: &[Session]) -> Vec<Conversation> {
    let conversation = |session: &Session| Conversation {
        session: format!("session-{:x}", session.key),
        at: session.starts,
        system: None,
        turns: session.steps.iter().map(turn).collect(),
    };
    sessions.iter().map(conversation).collect()
}

fn turn(step: &Step) -> Turn {
    let pieces = step.prompt.pieces().iter();
    Turn {
        think: step.think,
        content: Content(pieces.map(|piece| (piece.id, piece.tokens)).collect()),
        answer: OutputLength::Exactly(step.output_tokens),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{"timestamp": 1000, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 2000, "input_length": 1400, "output_length": 6, "hash_ids": [0, 3, 4]}
{"timestamp": 5000, "input_length": 2048, "output_length": 7, "hash_ids": [0, 3, 4, 5]}
"#;

    #[test]
    fn the_ids_determine_the_text_and_the_clock_the_times() {
        let trace = Trace::read(TRACE.as_bytes(), None).unwrap();
        let workload = Workload::replay(&trace, 2.0);
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
        assert_eq!(
            workload.conversations[1].turns[0].answer,
            OutputLength::Exactly(6)
        );
        let sessions = [1, 2].map(|index: usize| &workload.conversations[index].session);
        assert_eq!(sessions[0], sessions[1]);
    }

    #[test]
    fn a_recording_of_isotherm_keeps_its_pieces() {
        let line = r#"{"timestamp": 27, "input_length": 700, "output_length": 120, "hash_ids": [81, 12], "pieces": [[4711, 64], [815, 636]], "answer": 77, "session": 5}"#;
        let trace = Trace::read(line.as_bytes(), None).unwrap();
        let workload = Workload::replay(&trace, 1.0);
        assert_eq!(
            workload.conversations[0].turns[0].content,
            Content(vec![(4711, 64), (815, 636)])
        );
    }
}
