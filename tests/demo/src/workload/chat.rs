//! Chats of users with applications that share system prompts.
//!
//! Each conversation follows from its region, its client and its number alone. A run of fixed length thus gets the same
//! conversations, however many of them a client reaches.
//!
//! A user of an application asks a few questions in a row and reads each response before the next. A prompt has three parts:
//! the application's system prompt, the past of the conversation, and the new question. SkyLB (section 2.3) and public chat
//! traces show the same traffic. Regions share no application: SkyLB finds several times more common prefix within a region
//! than across regions, and a forwarded request must not find a warmer cache than in production.

use std::time::Duration;

use rand::distr::Distribution as _;
use rand::distr::weighted::WeightedIndex;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::{Content, Conversation, LoadModel, OutputLength, Turn, Workload};

/// The shape of all conversations; times are those of the engines. Ranges of lengths include both ends.
#[derive(Clone, Debug)]
pub struct Chat {
    /// Seed of every draw.
    pub seed: u64,
    /// Applications of each region; the k-th has a popularity of 1/k.
    pub applications: usize,
    /// Length of a system prompt in tokens.
    pub system_tokens: (u32, u32),
    /// Length of the document before the first question, in tokens.
    pub document_tokens: (u32, u32),
    /// Questions in one conversation.
    pub turns: (u32, u32),
    /// Mean time from a response to the next question; exponentially distributed, at most three times this.
    pub think_mean: Duration,
}

/// Length of a question in tokens.
const QUESTION_TOKENS: (u32, u32) = (20, 200);
/// Bound on the length of a response in tokens.
const ANSWER_TOKENS_MAX: u32 = 256;

/// A client.
#[derive(Clone, Copy, Debug)]
pub struct ClientId<'a> {
    /// Name of the region.
    pub name: &'a str,
    /// Index of the region.
    pub region: usize,
    /// Index of the client in the region.
    pub client: usize,
}

impl Chat {
    /// Chat on small GPUs: the KV caches hold each conversation once, and several times too little for copies on every
    /// replica.
    #[must_use]
    pub fn multi_turn(seed: u64, replicas: usize) -> Self {
        Self {
            seed,
            applications: 6 * replicas,
            system_tokens: (500, 1_500),
            document_tokens: (0, 0),
            turns: (3, 8),
            think_mean: Duration::from_secs(12),
        }
    }

    /// Chat about documents. Users answer at once, as the closed loops of SkyLB's evaluation do. The KV cache of the paper's
    /// replica (an L4) holds about thirty conversations and the system prompts.
    #[must_use]
    pub fn about_documents(seed: u64) -> Self {
        Self {
            seed,
            applications: 4,
            system_tokens: (300, 700),
            document_tokens: (50, 350),
            turns: (2, 6),
            think_mean: Duration::from_millis(500),
        }
    }

    /// A workload of this many requests, which cut the last conversation short. Every time is divided by `speed`.
    #[must_use]
    pub fn workload(&self, requests: usize, users: usize, speed: f64) -> Workload {
        let mut conversations = Vec::new();
        let mut left = requests;
        while left > 0 {
            let client = ClientId {
                name: "session",
                region: 0,
                client: conversations.len(),
            };
            let mut conversation = self.conversation(client, 0, speed);
            conversation.turns.truncate(left);
            left -= conversation.turns.len();
            conversations.push(conversation);
        }
        Workload {
            name: "multi-turn chat".into(),
            description: format!(
                "{requests} requests of {users} users at once in {} conversations of up to {} turns, over {} shared system \
                 prompts",
                conversations.len(),
                self.turns.1,
                self.applications,
            ),
            load_model: LoadModel::Closed {
                users: users.max(1),
            },
            conversations,
        }
    }

    /// Conversation `number` of a client, with every time divided by `speed`.
    #[must_use]
    pub fn conversation(&self, client: ClientId<'_>, number: u32, speed: f64) -> Conversation {
        let mut random = self.random(client.region, client.client as u64, number.into());
        let turns = uniform(&mut random, self.turns).max(1);
        let system = self.system(&mut random, client.region);
        let at = self.think(&mut random, speed);
        let turn = |turn| {
            let question = uniform(&mut random, QUESTION_TOKENS);
            let (document, think) = if turn == 0 {
                (uniform(&mut random, self.document_tokens), Duration::ZERO)
            } else {
                (0, self.think(&mut random, speed))
            };
            Turn {
                think,
                content: Content(vec![(random.random(), document + question)]),
                answer: OutputLength::AtMost(ANSWER_TOKENS_MAX),
            }
        };
        Conversation {
            session: format!("{}-{}-{number}", client.name, client.client),
            at,
            system: Some(system),
            turns: (0..turns).map(turn).collect(),
        }
    }

    /// The system prompt of one of the region's applications.
    fn system(&self, random: &mut Pcg64Mcg, region: usize) -> Content {
        let weights = (1..=self.applications.max(1)).map(|rank| 1.0 / rank as f64);
        let application = WeightedIndex::new(weights).map_or(0, |index| index.sample(random));
        let mut random = self.random(region, u64::MAX, application as u64);
        let tokens = uniform(&mut random, self.system_tokens);
        Content(vec![(random.random(), tokens)])
    }

    /// The generator of one conversation or one application.
    fn random(&self, region: usize, client: u64, number: u64) -> Pcg64Mcg {
        let parts = [self.seed, region as u64, client, number];
        // The first draws of close seeds are alike, so each part seeds the generator of the next.
        let seed = parts.iter().fold(0, |seed: u64, part| {
            Pcg64Mcg::seed_from_u64(seed.wrapping_add(*part)).random()
        });
        Pcg64Mcg::seed_from_u64(seed)
    }

    fn think(&self, random: &mut Pcg64Mcg, speed: f64) -> Duration {
        let exponential = -(1.0 - random.random::<f64>()).ln();
        self.think_mean.mul_f64(exponential.min(3.0)).div_f64(speed)
    }
}

fn uniform(random: &mut Pcg64Mcg, (min, max): (u32, u32)) -> u32 {
    random.random_range(min..=max.max(min))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(region: usize, client: usize) -> ClientId<'static> {
        ClientId {
            name: "us",
            region,
            client,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_workload_of_the_requested_size() {
        let drawn = |seed| format!("{:?}", Chat::multi_turn(seed, 4).workload(101, 64, 10.0));
        let workload = Chat::multi_turn(7, 4).workload(101, 64, 10.0);
        assert_eq!(workload.requests(), 101);
        assert_eq!(drawn(7), format!("{workload:?}"));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn a_client_repeats_its_conversations_in_every_run_and_none_of_another() {
        let chat = Chat::about_documents(7);
        let text = |region, index, number| {
            let conversation = chat.conversation(client(region, index), number, 10.0);
            conversation.turns[0].content.render()
        };
        assert_eq!(text(0, 3, 5), text(0, 3, 5));
        for other in [text(1, 3, 5), text(0, 4, 5), text(0, 3, 6)] {
            assert_ne!(text(0, 3, 5), other);
        }
    }

    #[test]
    fn regions_have_their_own_applications_and_a_few_are_the_most_popular() {
        let chat = Chat::about_documents(7);
        let by_popularity = |region: usize| {
            let systems = (0..1_000)
                .filter_map(|index| chat.conversation(client(region, index), 0, 1.0).system);
            let mut counts: Vec<(usize, Vec<(u64, u32)>)> = Vec::new();
            for Content(system) in systems {
                match counts.iter_mut().find(|(_, known)| *known == system) {
                    Some((count, _)) => *count += 1,
                    None => counts.push((1, system)),
                }
            }
            counts.sort_unstable();
            counts
        };
        let (us, eu) = (by_popularity(0), by_popularity(1));
        assert_eq!((us.len(), eu.len()), (4, 4));
        assert!(us[3].0 > 3 * us[0].0 && us[0].0 > 0, "{us:?}");
        assert!(
            us.iter()
                .all(|(_, system)| eu.iter().all(|(_, other)| other != system))
        );
    }

    #[test]
    fn faster_engines_shorten_the_pauses_and_keep_the_text() {
        let chat = Chat::about_documents(7);
        let [slow, fast] = [1.0, 10.0].map(|speed| chat.conversation(client(0, 0), 0, speed));
        assert_eq!(slow.turns[1].content, fast.turns[1].content);
        let ratio = slow.turns[1].think.as_secs_f64() / fast.turns[1].think.as_secs_f64();
        assert!((ratio - 10.0).abs() < 1e-3);
    }
}
