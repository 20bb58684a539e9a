//! Prompts that cost the generator no copy.
//!
//! A prompt is a few short heads, and pieces of one text that all prompts share. A number that has not been used
//! stands at its beginning, so what is sent is unique from its first bytes on; the turns of one conversation begin
//! with the same number.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::pieces::Pieces;
use super::workload::{PromptKind, Workload};
use isotherm_harness::MODEL;
use isotherm_harness::synthetic_text;

/// Length of the text from which prompts are cut.
const TEXT_BYTES: usize = 1 << 20;
/// Pieces begin at a multiple of this, which shares no factor with the room there is.
const STEP_BYTES: u64 = 7_919;
/// Spreads consecutive numbers over all 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Turns of a conversation.
const TURNS: u32 = 8;
/// Shares of the last prompt, of which each turn adds one: the first turn has 25 of 32 of them, so that all turns are about as
/// long as the workload says.
const SHARES: usize = 32;

/// A source of prompts; clients share it.
#[derive(Debug)]
pub struct Prompts {
    text: Bytes,
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

/// Where one client is in its conversation.
#[derive(Debug, Default)]
pub struct ConversationState {
    number: u64,
    turn: u32,
}

impl Prompts {
    /// The next prompt of a client.
    pub(crate) fn next(&self, workload: &Workload, conversation: &mut ConversationState) -> Pieces {
        match workload.prompts {
            PromptKind::Unique => {
                let number = self.number();
                self.body(workload, number, [workload.prompt_bytes].into_iter())
            }
            PromptKind::MultiTurn => {
                if conversation.turn == 0 {
                    conversation.number = self.number();
                }
                conversation.turn += 1;
                let share = workload.prompt_bytes / SHARES;
                let first = workload.prompt_bytes - (TURNS as usize - 1) * share;
                let more = conversation.turn as usize - 1;
                let body = self.body(
                    workload,
                    conversation.number,
                    std::iter::once(first).chain(std::iter::repeat_n(share, more)),
                );
                conversation.turn %= TURNS;
                body
            }
        }
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A chat request with messages of these lengths, the user's and the assistant's in turn.
    fn body(
        &self,
        workload: &Workload,
        number: u64,
        messages: impl Iterator<Item = usize>,
    ) -> Pieces {
        let stream = workload.chunks > 0;
        let mut pieces = Pieces::default();
        let room = (self.text.len().saturating_sub(workload.prompt_bytes) as u64).max(1);
        let mut at = (number.wrapping_mul(STEP_BYTES) % room) as usize;
        for (index, bytes) in messages.enumerate() {
            let head = if index == 0 {
                format!(
                    r#"{{"model":"{MODEL}","stream":{stream},"messages":[{{"role":"user","content":"{:016x} "#,
                    number.wrapping_mul(SPREAD)
                )
                .into()
            } else if index % 2 == 1 {
                Bytes::from_static(br#""},{"role":"assistant","content":""#)
            } else {
                Bytes::from_static(br#""},{"role":"user","content":""#)
            };
            pieces.push(head);
            let end = (at + bytes).min(self.text.len());
            pieces.push(self.text.slice(at..end));
            at = end;
        }
        pieces.push(Bytes::from_static(br#""}]}"#));
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Buf as _;

    fn workload(prompts: PromptKind) -> Workload {
        Workload {
            name: "test",
            prompt_bytes: 4_096,
            prompts,
            chunks: 1,
        }
    }

    fn text_of(mut prompt: Pieces) -> String {
        let bytes = prompt.copy_to_bytes(prompt.remaining());
        String::from_utf8(bytes.to_vec()).unwrap()
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
