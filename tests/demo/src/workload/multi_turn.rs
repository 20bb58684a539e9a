//! Chats with shared system prompts.
//!
//! A handful of applications, each with its own system prompt; their popularity falls off as words' does (Zipf). A
//! user of one of them asks a few questions in a row and reads each answer before the next. So a prompt has three
//! parts: what all users of the application share, what only this conversation shares with its own past, and what is
//! new. That is the traffic which SkyLB describes in its section 2.3, and what public chat traces look like.

use std::time::Duration;

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::random::{exponential, uniform, zipf};
use super::{Content, Conversation, LoadModel, OutputLength, Turn, Workload};

/// The shape of such a workload. Times are in life; [`MultiTurn::workload`] divides them by its `speed`.
#[derive(Clone, Debug)]
pub struct MultiTurn {
    /// Everything is drawn from this.
    pub seed: u64,
    /// Requests in all; the last conversation is cut short to meet it.
    pub requests: usize,
    /// Users at once.
    pub users: usize,
    /// Applications, each with its own system prompt.
    pub applications: usize,
    /// Length of a system prompt, tokens.
    pub system_tokens: (u32, u32),
    /// Questions in one conversation.
    pub turns: (u32, u32),
    /// Length of a question, tokens.
    pub question_tokens: (u32, u32),
    /// An answer is cut here, tokens.
    pub answer_tokens_max: u32,
    /// Mean time from an answer to the next question; exponentially distributed, at most three times this.
    pub think_mean: Duration,
}

impl MultiTurn {
    /// Chat on small GPUs: for each replica, about as many users as its KV cache can serve when each user always
    /// comes back to the same one, and several times too many when they all go everywhere.
    #[must_use]
    pub fn chat(seed: u64, replicas: usize) -> Self {
        Self {
            seed,
            requests: 240 * replicas,
            users: 16 * replicas,
            applications: 6 * replicas,
            system_tokens: (500, 1_500),
            turns: (3, 8),
            question_tokens: (20, 200),
            answer_tokens_max: 256,
            think_mean: Duration::from_secs(12),
        }
    }

    /// Draws the conversations, with every time divided by `speed`.
    #[must_use]
    pub fn workload(&self, speed: f64) -> Workload {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let systems: Vec<Content> = (0..self.applications.max(1))
            .map(|_| Content::Seeded {
                seed: random.random(),
                tokens: uniform(&mut random, self.system_tokens),
            })
            .collect();

        let mut conversations = Vec::new();
        let mut left = self.requests;
        while left > 0 {
            let number = conversations.len();
            let turns = (uniform(&mut random, self.turns).max(1) as usize).min(left);
            left -= turns;
            let system = systems.get(zipf(&mut random, systems.len())).cloned();
            let turns: Vec<Turn> = (0..turns)
                .map(|turn| Turn {
                    think: if turn == 0 {
                        Duration::ZERO
                    } else {
                        self.think(&mut random, speed)
                    },
                    content: Content::Seeded {
                        seed: random.random(),
                        tokens: uniform(&mut random, self.question_tokens),
                    },
                    answer: OutputLength::AtMost(self.answer_tokens_max),
                })
                .collect();
            // Users do not all arrive in the same instant.
            let at = self.think(&mut random, speed);
            conversations.push(Conversation {
                session: format!("session-{number}"),
                at,
                system,
                turns,
            });
        }
        Workload {
            name: "multi-turn chat".into(),
            description: format!(
                "{} requests of {} users at once in {} conversations of up to {} turns, over {} shared system prompts",
                self.requests,
                self.users,
                conversations.len(),
                self.turns.1,
                self.applications,
            ),
            load_model: LoadModel::Closed {
                users: self.users.max(1),
            },
            conversations,
        }
    }

    fn think(&self, random: &mut Pcg64Mcg, speed: f64) -> Duration {
        self.think_mean.mul_f64(exponential(random)).div_f64(speed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_workload_of_the_size_asked_for() {
        let shape = MultiTurn {
            requests: 101,
            ..MultiTurn::chat(7, 4)
        };
        let (one, two) = (shape.workload(10.0), shape.workload(10.0));
        assert_eq!(one.requests(), 101);
        assert_eq!(format!("{one:?}"), format!("{two:?}"));
        assert_ne!(
            format!("{one:?}"),
            format!("{:?}", MultiTurn { seed: 8, ..shape }.workload(10.0))
        );
    }

    #[test]
    fn a_faster_life_has_shorter_thoughts_and_the_same_words() {
        let shape = MultiTurn::chat(7, 1);
        let (slow, fast) = (shape.workload(1.0), shape.workload(10.0));
        let think = |workload: &Workload| workload.conversations[0].turns[1].think.as_secs_f64();
        assert!((think(&slow) / think(&fast) - 10.0).abs() < 1e-6);
        assert_eq!(
            slow.conversations[0].turns[1].content,
            fast.conversations[0].turns[1].content
        );
    }
}
