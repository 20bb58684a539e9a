//! People who chat: conversations of several turns, in a closed loop.
//!
//! A client holds one conversation at a time: it waits for the answer, thinks, and writes the next message behind the whole
//! history. Conversations belong to users, whose name is the session key, as in SkyLB's evaluation (section 5.1).
//!
//! Prompts share more than histories. SkyLB measured the *prefix similarity* of pairs of requests (section 3.2, Figure 5: the
//! common prefix over the shorter length): requests of a user are 7.60 times as similar as those of different users in
//! WildChat, 2.47 times in Chatbot Arena, and requests of different regions have 2.5 %. So conversations begin with an opening
//! that many users share (popular ones, by Zipf, partly the region's own), with an opening that their user repeats, or with
//! something new. Shares and lengths give the similarities of the paper; a test checks them. The level within users (19 % for
//! both) is 7.60 times those 2.5 %.
//!
//! A few very popular openings give that mean: with many, a fleet that remembers nothing of users would find a third of all
//! tokens, where SkyLB saw round robin find 11 to 17 %.

use core::time::Duration;

use super::rng::{LogNormal, SeededRng, Zipf};
use super::{Session, Step, Workload};
use crate::prompt::{Piece, Prompt};

/// People who chat.
#[derive(Clone, Debug, PartialEq)]
pub struct Chat {
    /// The workload's name.
    pub name: &'static str,
    /// Conversations that go on at any time, by region.
    pub clients: Vec<usize>,
    /// End of sending.
    pub duration: Duration,
    /// Mean of the time between an answer and the next message; exponential.
    pub think_s: f64,
    /// Mean number of messages in a conversation; geometric.
    pub turns_mean: f64,
    /// Length of a message.
    pub message: LogNormal,
    /// Length of an answer.
    pub answer: LogNormal,
    /// How conversations begin.
    pub openings: Openings,
}

/// How conversations begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Openings {
    /// Share of conversations that begin with a popular opening.
    pub popular_share: f64,
    /// Number of popular openings, everywhere and in each region.
    pub popular: usize,
    /// Share of the popular openings that belong to the client's region only.
    pub local_share: f64,
    /// Share of conversations that begin with the user's own opening.
    pub own_share: f64,
    /// Length of an opening.
    pub tokens: LogNormal,
}

/// Mean number of conversations of a user, before another user takes the client; geometric.
const CONVERSATIONS_MEAN: f64 = 5.0;
/// A longer conversation ends.
const CONTEXT_TOKENS_MAX: u32 = 16_000;
/// Zipf exponent of the popular openings.
const EXPONENT: f64 = 1.0;
/// Lengths of one message and one answer, tokens.
const MESSAGE_TOKENS: (u32, u32) = (1, 8_000);
const ANSWER_TOKENS: (u32, u32) = (4, 2_048);
const OPENING_TOKENS: (u32, u32) = (16, 4_000);
/// Clients begin within this time.
const ARRIVAL_S: f64 = 10.0;
/// No client gets through requests faster than this, so a run has enough of them.
const REQUEST_S_MIN: f64 = 3.0;

impl Chat {
    /// WildChat as SkyLB plays it: 40 clients in the first region, 30 in each of two others.
    ///
    /// 2.54 turns a conversation, messages of 296 +- 1,609 and answers of 441 +- 411 tokens (WildChat, Table 2), 5 conversations
    /// a user (its million of conversations is of 204,736 addresses).
    pub fn wildchat() -> Self {
        Self {
            name: "chat-wildchat",
            clients: vec![40, 30, 30],
            duration: Duration::from_secs(600),
            think_s: 1.0,
            turns_mean: 2.54,
            message: LogNormal::of_mean(295.58, 1_609.18),
            answer: LogNormal::of_mean(441.34, 410.91),
            openings: Openings {
                popular_share: 0.31,
                popular: 2,
                local_share: 0.2,
                own_share: 0.25,
                tokens: LogNormal::new(400.0, 0.3),
            },
        }
    }

    /// Chatbot Arena as SkyLB plays it: 80 clients in each of three regions.
    ///
    /// 2.02 turns a conversation, messages of 69.5 and answers of 214.5 tokens (LMSYS-Chat-1M, Table 1: the conversations of that
    /// site). Deviations are not published; those of WildChat, in proportion.
    pub fn arena() -> Self {
        Self {
            name: "chat-arena",
            clients: vec![80, 80, 80],
            duration: Duration::from_secs(240),
            turns_mean: 2.02,
            message: LogNormal::of_mean(69.5, 140.0),
            answer: LogNormal::of_mean(214.5, 200.0),
            openings: Openings {
                popular_share: 0.315,
                popular: 1,
                local_share: 0.0,
                own_share: 0.13,
                tokens: LogNormal::new(150.0, 0.3),
            },
            ..Self::wildchat()
        }
    }

    /// The workload of this seed.
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let book = Book::new(self, &mut rng);
        let mut sessions = Vec::new();
        for (region, clients) in self.clients.iter().enumerate() {
            for _ in 0..*clients {
                self.client(region, &book, &mut rng, &mut sessions);
            }
        }
        Workload {
            name: self.name.to_owned(),
            warmup_requests: self.clients.iter().sum(),
            sends_until: Some(self.duration),
            sessions,
        }
    }

    /// The conversations of one client, one behind the other.
    fn client(&self, region: usize, book: &Book, rng: &mut SeededRng, sessions: &mut Vec<Session>) {
        let wanted = (self.duration.as_secs_f64() / REQUEST_S_MIN).ceil() as usize;
        let mut starts = rng.unit() * ARRIVAL_S;
        let (mut requests, mut follows) = (0, None);
        while requests < wanted {
            let key = rng.key();
            let own = book.opening(rng);
            let conversations = rng.repeats(1.0 - 1.0 / CONVERSATIONS_MEAN, 100);
            for _ in 0..conversations {
                let opening = book.begin(region, own, rng);
                let steps = self.conversation(opening, rng);
                requests += steps.len();
                sessions.push(Session {
                    region,
                    follows,
                    ..Session::new(key, Duration::from_secs_f64(starts), steps)
                });
                follows = Some(sessions.len() - 1);
                starts = rng.exponential(self.think_s);
            }
        }
    }

    /// The turns of one conversation.
    pub(super) fn conversation(&self, opening: Option<Piece>, rng: &mut SeededRng) -> Vec<Step> {
        let turns = rng.repeats(1.0 - 1.0 / self.turns_mean, 50);
        let mut steps: Vec<Step> = Vec::with_capacity(turns);
        let mut history = Prompt::new(opening);
        for turn in 0..turns {
            let prompt = history.with([self.message.text(rng, MESSAGE_TOKENS)]);
            if turn > 0 && prompt.tokens() > CONTEXT_TOKENS_MAX {
                break;
            }
            let think = if turn == 0 {
                0.0
            } else {
                rng.exponential(self.think_s)
            };
            let step = Step {
                after: turn.checked_sub(1),
                think: Duration::from_secs_f64(think),
                prompt,
                output_tokens: self.answer.tokens(rng, ANSWER_TOKENS),
                answer_id: rng.id(),
            };
            history = step.prompt.with([step.answer()]);
            steps.push(step);
        }
        steps
    }
}

/// The openings that people know.
pub(super) struct Book {
    openings: Openings,
    everywhere: Vec<Piece>,
    regions: Vec<Vec<Piece>>,
    popularity: Zipf,
}

impl Book {
    pub(super) fn new(chat: &Chat, rng: &mut SeededRng) -> Self {
        let openings = chat.openings;
        let mut opening = || openings.tokens.text(rng, OPENING_TOKENS);
        let mut list = || -> Vec<Piece> { (0..openings.popular).map(|_| opening()).collect() };
        Self {
            openings,
            everywhere: list(),
            regions: chat.clients.iter().map(|_| list()).collect(),
            popularity: Zipf::new(openings.popular, EXPONENT),
        }
    }

    /// An opening of one's own.
    pub(super) fn opening(&self, rng: &mut SeededRng) -> Piece {
        self.openings.tokens.text(rng, OPENING_TOKENS)
    }

    /// How a conversation begins, if not with something new.
    pub(super) fn begin(&self, region: usize, own: Piece, rng: &mut SeededRng) -> Option<Piece> {
        let kind = rng.unit();
        let list = if rng.chance(self.openings.local_share) {
            self.regions.get(region)
        } else {
            Some(&self.everywhere)
        };
        let rank = self.popularity.sample(rng);
        if kind < self.openings.popular_share {
            list.and_then(|list| list.get(rank)).copied()
        } else if kind < self.openings.popular_share + self.openings.own_share {
            Some(own)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_turns_have_the_published_means() {
        for (chat, turns, message, answer) in [
            (Chat::wildchat(), 2.54, 295.58, 441.34),
            (Chat::arena(), 2.02, 69.5, 214.5),
        ] {
            let workload = chat.generate(1);
            let count = workload.requests() as f64;
            let mean_turns = count / workload.sessions.len() as f64;
            let mean = |tokens: fn(&Step) -> u32| {
                let steps = workload.sessions.iter().flat_map(|session| &session.steps);
                steps.map(|step| f64::from(tokens(step))).sum::<f64>() / count
            };
            let answers = mean(|step| step.output_tokens);
            let messages = mean(|step| step.prompt.pieces().last().unwrap().tokens);
            println!(
                "{}: turns {mean_turns}, messages {messages}, answers {answers}",
                chat.name
            );
            assert!((mean_turns / turns - 1.0).abs() < 0.06, "{mean_turns}");
            assert!((answers / answer - 1.0).abs() < 0.05, "{answers}");
            // The longest messages are cut, and the tail of WildChat's is long.
            assert!((0.75..=1.05).contains(&(messages / message)), "{messages}");
        }
    }

    #[test]
    fn a_turn_repeats_the_whole_conversation() {
        let workload = Chat::wildchat().generate(1);
        let session = workload
            .sessions
            .iter()
            .find(|session| session.steps.len() > 2)
            .unwrap();
        let [first, second, ..] = &session.steps[..] else {
            panic!("three turns");
        };
        let history = first.prompt.with([first.answer()]);
        assert_eq!(
            second.prompt.pieces()[..history.pieces().len()],
            *history.pieces()
        );
        assert_eq!(second.after, Some(0));
    }
}
