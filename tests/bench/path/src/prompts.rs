//! Prompts of the load generator.
//!
//! A prompt consists of pieces of one text that all prompts share. A new number at its beginning makes it unique from its
//! first bytes on; the turns of one conversation begin with the same number.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::workload::{PromptKind, Workload};
use isotherm_harness::MODEL;
use isotherm_harness::synthetic_text;

/// Length of the text from which prompts are cut.
const TEXT_BYTES: usize = 1 << 20;
/// Pieces begin at a multiple of this prime.
const STEP_BYTES: u64 = 7_919;
/// Spreads consecutive numbers over all 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Turns of a conversation.
const TURNS: u32 = 8;
/// Shares of the last prompt, of which each turn adds one. The first turn has 25 of 32, so all turns have about the length of
/// the workload.
const SHARES: usize = 32;

/// A source of prompts; clients share it.
#[derive(Debug)]
pub struct Prompts {
    text: Vec<u8>,
    next: AtomicU64,
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            text: synthetic_text::bytes(1, TEXT_BYTES).into(),
            next: AtomicU64::new(1),
        }
    }
}

/// Position of a client in its conversation.
#[derive(Debug, Default)]
pub struct ConversationState {
    number: u64,
    turn: u32,
}

impl Prompts {
    /// The request with the next prompt of a client.
    pub(crate) fn next(&self, workload: &Workload, conversation: &mut ConversationState) -> Bytes {
        if workload.prompts == PromptKind::Unique {
            return self.body(workload, self.number(), [workload.prompt_bytes].into_iter());
        }
        if conversation.turn == 0 {
            conversation.number = self.number();
        }
        let later_turns = conversation.turn as usize;
        conversation.turn = (conversation.turn + 1) % TURNS;
        let share = workload.prompt_bytes / SHARES;
        let first = workload.prompt_bytes - (TURNS as usize - 1) * share;
        let lengths = std::iter::once(first).chain(std::iter::repeat_n(share, later_turns));
        self.body(workload, conversation.number, lengths)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A chat request with messages of these lengths, the user's and the assistant's in turn.
    fn body(
        &self,
        workload: &Workload,
        number: u64,
        lengths: impl Iterator<Item = usize>,
    ) -> Bytes {
        let stream = workload.chunks > 0;
        let id = number.wrapping_mul(SPREAD);
        let mut body = Vec::with_capacity(workload.prompt_bytes + 1_024);
        let room = (self.text.len().saturating_sub(workload.prompt_bytes) as u64).max(1);
        let mut at = (number.wrapping_mul(STEP_BYTES) % room) as usize;
        body.extend(format!(r#"{{"model":"{MODEL}","stream":{stream},"messages":["#).as_bytes());
        for (index, bytes) in lengths.enumerate() {
            let opening = match index {
                0 => format!(r#"{{"role":"user","content":"{id:016x} "#),
                _ if index % 2 == 1 => r#""},{"role":"assistant","content":""#.to_owned(),
                _ => r#""},{"role":"user","content":""#.to_owned(),
            };
            body.extend(opening.as_bytes());
            let end = (at + bytes).min(self.text.len());
            body.extend(self.text.get(at..end).unwrap_or_default());
            at = end;
        }
        body.extend(br#""}]}"#);
        body.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(prompts: PromptKind) -> Workload {
        Workload {
            name: "test",
            prompt_bytes: 4_096,
            prompts,
            chunks: 1,
        }
    }

    fn text_of(prompt: Bytes) -> String {
        String::from_utf8(prompt.to_vec()).unwrap()
    }

    fn contents(body: &str) -> Vec<String> {
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        let messages = value["messages"].as_array().unwrap();
        messages
            .iter()
            .map(|message| message["content"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn unique_prompts_are_json_of_their_length_and_no_two_begin_alike() {
        let (prompts, asked) = (Prompts::default(), workload(PromptKind::Unique));
        let mut conversation = ConversationState::default();
        let one = text_of(prompts.next(&asked, &mut conversation));
        let two = text_of(prompts.next(&asked, &mut conversation));
        let content = contents(&one).join("");
        assert_eq!(content.len(), 4_096 + "0123456789abcdef ".len());
        let differ = one.bytes().zip(two.bytes()).position(|(a, b)| a != b);
        assert!(differ.is_some_and(|at| at < 90), "{differ:?}");
    }

    #[test]
    fn each_turn_repeats_the_one_before_and_the_last_has_the_whole_length() {
        let (prompts, asked) = (Prompts::default(), workload(PromptKind::MultiTurn));
        let mut conversation = ConversationState::default();
        let mut before: Vec<String> = Vec::new();
        for turn in 1..=TURNS as usize {
            let now = contents(&text_of(prompts.next(&asked, &mut conversation)));
            assert_eq!(now.len(), turn);
            assert!(now.starts_with(&before));
            before = now;
        }
        assert_eq!(before.join("").len(), 4_096 + 17);
        let next = contents(&text_of(prompts.next(&asked, &mut conversation)));
        assert_eq!(next.len(), 1);
        assert_ne!(
            next.first().unwrap().get(..17),
            before.first().unwrap().get(..17)
        );
    }
}
