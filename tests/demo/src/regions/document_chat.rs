//! Conversations of the clients of one region. Each is derived from the numbers of its region, its client and its position in
//! that client's sequence alone.
//!
//! A run ends after a fixed time, so how far a client gets depends on how it is served; what it says first, second and
//! so on does not. Hence every run meets the same clients.
//!
//! A conversation is a user's own document and a few questions about it, behind the system prompt of an application of
//! the region. Applications are not shared between regions: SkyLB finds several times as much common prefix within a
//! region as across regions, and a forwarded request should not look warmer here than it would be in life.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::workload::random::{exponential, uniform, zipf};
use crate::workload::{Content, Conversation, OutputLength, Turn};

/// The shape of all conversations. Times are in life.
#[derive(Clone, Debug)]
pub struct DocumentChat {
    /// Everything is drawn from this.
    pub seed: u64,
    /// Applications of each region, each with its own system prompt; the k-th has a popularity of 1/k.
    pub applications: usize,
    /// Length of a system prompt, tokens.
    pub system_tokens: (u32, u32),
    /// Length of the document that a conversation is about, tokens; it is part of the first question.
    pub document_tokens: (u32, u32),
    /// Questions in one conversation.
    pub turns: (u32, u32),
    /// Length of a question, tokens.
    pub question_tokens: (u32, u32),
    /// An answer is cut here, tokens.
    pub answer_tokens_max: u32,
    /// Mean time from an answer to the next question; exponentially distributed, at most three times this.
    pub think_mean: Duration,
}

impl DocumentChat {
    /// Chat about documents. Users answer at once, as the closed loops of SkyLB's evaluation do. Some thirty conversations
    /// and the system prompts fit into the KV cache of the paper's replica (an L4), each of them once.
    #[must_use]
    pub fn about_documents(seed: u64) -> Self {
        Self {
            seed,
            applications: 4,
            system_tokens: (300, 700),
            document_tokens: (50, 350),
            turns: (2, 6),
            question_tokens: (20, 200),
            answer_tokens_max: 256,
            think_mean: Duration::from_millis(500),
        }
    }

    /// The conversation of that number in the life of that client, with every time divided by `speed`.
    #[must_use]
    pub fn conversation(&self, who: ClientId<'_>, number: u32, speed: f64) -> Conversation {
        let mut random = Pcg64Mcg::new(
            u128::from(self.seed)
                ^ (u128::from(who.region) << 96)
                ^ (u128::from(who.client) << 64)
                ^ (u128::from(number) << 32)
                ^ 0x9e37_79b9,
        );
        // The first draws of close seeds are alike.
        let mut random = Pcg64Mcg::seed_from_u64(random.random());
        let application = zipf(&mut random, self.applications);
        let turns = uniform(&mut random, self.turns).max(1);
        let document = uniform(&mut random, self.document_tokens);
        Conversation {
            session: format!("{}-{}-{number}", who.name, who.client),
            at: self.think(&mut random, speed),
            system: Some(self.system(who.region, application)),
            turns: (0..turns)
                .map(|turn| {
                    let question = uniform(&mut random, self.question_tokens);
                    let tokens = if turn == 0 {
                        document + question
                    } else {
                        question
                    };
                    let think = if turn == 0 {
                        Duration::ZERO
                    } else {
                        self.think(&mut random, speed)
                    };
                    Turn {
                        think,
                        content: Content::Seeded {
                            seed: random.random(),
                            tokens,
                        },
                        answer: OutputLength::AtMost(self.answer_tokens_max),
                    }
                })
                .collect(),
        }
    }

    fn system(&self, region: u32, application: usize) -> Content {
        let mut random = Pcg64Mcg::seed_from_u64(
            self.seed ^ (u64::from(region) << 32) ^ ((application as u64) << 16) ^ 0x5ca1_ab1e,
        );
        Content::Seeded {
            seed: random.random(),
            tokens: uniform(&mut random, self.system_tokens),
        }
    }

    fn think(&self, random: &mut Pcg64Mcg, speed: f64) -> Duration {
        self.think_mean.mul_f64(exponential(random)).div_f64(speed)
    }
}

/// A client.
#[derive(Clone, Copy, Debug)]
pub struct ClientId<'a> {
    /// Name of the region.
    pub name: &'a str,
    /// Number of the region.
    pub region: u32,
    /// Number of the client in the region.
    pub client: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(region: u32, client: u32) -> ClientId<'static> {
        ClientId {
            name: "us",
            region,
            client,
        }
    }

    #[test]
    fn a_client_says_the_same_in_every_run_and_never_the_same_twice() {
        let chat = DocumentChat::about_documents(7);
        let text = |region, client, number| {
            let conversation = chat.conversation(who(region, client), number, 10.0);
            conversation.turns[0].content.render()
        };
        assert_eq!(text(0, 3, 5), text(0, 3, 5));
        for other in [text(1, 3, 5), text(0, 4, 5), text(0, 3, 6)] {
            assert_ne!(text(0, 3, 5), other);
        }
    }

    #[test]
    fn regions_have_their_own_applications_with_a_favourite() {
        let chat = DocumentChat::about_documents(7);
        let favourite = |region: u32| {
            let mut systems: Vec<String> = (0..40)
                .filter_map(|client| chat.conversation(who(region, client), 0, 1.0).system)
                .map(|system| system.render())
                .collect();
            systems.sort_unstable();
            let count = |one: &String| systems.iter().filter(|other| *other == one).count();
            let most = systems.iter().max_by_key(|one| count(one)).unwrap();
            (most.clone(), count(most))
        };
        let (us, eu) = (favourite(0), favourite(1));
        assert!(us.1 > 5 && eu.1 > 5 && us.0 != eu.0);
    }

    #[test]
    fn a_faster_life_has_shorter_thoughts_and_the_same_words() {
        let chat = DocumentChat::about_documents(7);
        let [slow, fast] = [1.0, 10.0].map(|speed| chat.conversation(who(0, 0), 0, speed));
        assert_eq!(slow.turns[1].content, fast.turns[1].content);
        let ratio = slow.turns[1].think.as_secs_f64() / fast.turns[1].think.as_secs_f64();
        assert!((ratio - 10.0).abs() < 1e-3);
    }
}
