//! Models that think before they answer: output lengths with a heavy tail, and lengths of two kinds in one pool.
//!
//! A thinking model writes thousands of tokens that the client never sends back: a later turn repeats the visible answer
//! only, so the cache of the thoughts is lost. Thoughts are log-normal with a median of 2,500 tokens and a mean of 4,100; one in
//! eight is longer than 8,000. Published traces have no such lengths yet, so these are set, not fitted.

use core::time::Duration;

use super::replay::duration;
use super::rng::{LogNormal, SeededRng, Zipf};
use super::{OpenLoop, Session, Step, Workload};
use crate::prompt::{Piece, Prompt};

const THOUGHTS: LogNormal = LogNormal::new(2_500.0, 1.0);
const THOUGHTS_TOKENS: (u32, u32) = (100, 24_000);
const ANSWER: LogNormal = LogNormal::new(400.0, 0.6);
const ANSWER_TOKENS: (u32, u32) = (20, 2_000);
const TEXT_TOKENS: (u32, u32) = (16, 16_000);

/// People who talk to a thinking model; closed loop, a single region.
#[derive(Clone, Debug, PartialEq)]
pub struct ReasoningChat {
    /// Conversations that go on at any time.
    pub clients: usize,
    /// End of sending.
    pub duration: Duration,
}

/// First message of a conversation, with a document, and later messages.
const FIRST: LogNormal = LogNormal::new(1_200.0, 0.8);
const MESSAGE: LogNormal = LogNormal::new(120.0, 0.8);
/// A system prompt that all conversations share.
const SYSTEM_TOKENS: u32 = 400;
const TURNS_MEAN: f64 = 3.0;
const THINK_S: f64 = 5.0;
/// Clients begin within this time.
const ARRIVAL_S: f64 = 30.0;
/// No client gets through requests faster than this, so a run has enough of them.
const REQUEST_S_MIN: f64 = 20.0;

/// Share of the requests that think.
const THINKING_SHARE: f64 = 0.15;
/// Tasks of the classifications, each with its instructions.
const TASKS: usize = 20;
const INSTRUCTIONS: LogNormal = LogNormal::new(1_200.0, 0.6);
const ITEM: LogNormal = LogNormal::new(300.0, 0.8);
const LABEL: LogNormal = LogNormal::new(8.0, 0.6);
const LABEL_TOKENS: (u32, u32) = (1, 40);

/// Output length of a request that thinks: thoughts and visible answer, in tokens.
fn thinking(rng: &mut SeededRng) -> (u32, u32) {
    let thoughts = THOUGHTS.tokens(rng, THOUGHTS_TOKENS);
    (thoughts, ANSWER.tokens(rng, ANSWER_TOKENS))
}

impl ReasoningChat {
    /// The workload of this seed.
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let system = rng.text(SYSTEM_TOKENS);
        let wanted = (self.duration.as_secs_f64() / REQUEST_S_MIN).ceil() as usize;
        let mut sessions = Vec::new();
        for _ in 0..self.clients {
            let (mut requests, mut follows) = (0, None);
            let mut starts = rng.unit() * ARRIVAL_S;
            while requests < wanted {
                let steps = conversation(system, &mut rng);
                requests += steps.len();
                sessions.push(Session {
                    follows,
                    ..Session::new(rng.key(), duration(starts), steps)
                });
                follows = Some(sessions.len() - 1);
                starts = rng.exponential(THINK_S);
            }
        }
        Workload {
            name: "reasoning".to_owned(),
            warmup_requests: self.clients,
            sends_until: Some(self.duration),
            sessions,
        }
    }
}

/// The turns of one conversation.
fn conversation(system: Piece, rng: &mut SeededRng) -> Vec<Step> {
    let turns = rng.repeats(1.0 - 1.0 / TURNS_MEAN, 12);
    let mut prompt = Prompt::new([system, FIRST.text(rng, TEXT_TOKENS)]);
    let mut steps = Vec::with_capacity(turns);
    for turn in 0..turns {
        let (thoughts, answer) = thinking(rng);
        let think_s = if turn == 0 {
            0.0
        } else {
            rng.exponential(THINK_S)
        };
        steps.push(Step {
            after: turn.checked_sub(1),
            think: duration(think_s),
            prompt: prompt.clone(),
            output_tokens: thoughts + answer,
            answer_id: rng.id(),
        });
        // The client repeats the visible answer, which stood behind the thoughts.
        prompt = prompt.with([rng.text(answer), MESSAGE.text(rng, TEXT_TOKENS)]);
    }
    steps
}

/// Short classifications and long thoughts in one pool, of a seed.
pub fn bimodal(of: &OpenLoop, seed: u64) -> Workload {
    let mut rng = SeededRng::new(seed);
    let instructions = |_| INSTRUCTIONS.text(&mut rng, TEXT_TOKENS);
    let tasks: Vec<Piece> = (0..TASKS).map(instructions).collect();
    let popularity = Zipf::new(TASKS, 1.0);
    let mut at = 0.0;
    let mut sessions = Vec::with_capacity(of.requests);
    while sessions.len() < of.requests {
        at += rng.exponential(1.0 / of.requests_per_s);
        let (prompt, tokens) = if rng.chance(THINKING_SHARE) {
            let (thoughts, answer) = thinking(&mut rng);
            let question = FIRST.text(&mut rng, TEXT_TOKENS);
            (Prompt::new([question]), thoughts + answer)
        } else {
            let task = tasks.get(popularity.sample(&mut rng)).copied();
            let item = ITEM.text(&mut rng, TEXT_TOKENS);
            let label = LABEL.tokens(&mut rng, LABEL_TOKENS);
            (Prompt::new(task.into_iter().chain([item])), label)
        };
        let answer = rng.text(tokens);
        sessions.push(Session::one(rng.key(), duration(at), prompt, answer));
    }
    of.workload("bimodal", sessions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(workload: &Workload) -> Vec<u32> {
        let steps = workload.sessions.iter().flat_map(|session| &session.steps);
        steps.map(|step| step.output_tokens).collect()
    }

    #[test]
    fn one_in_eight_answers_has_more_than_8000_tokens() {
        let reasoning = ReasoningChat {
            clients: 192,
            duration: Duration::from_secs(600),
        };
        let lengths = lengths(&reasoning.generate(1));
        let long = lengths.iter().filter(|tokens| **tokens > 8_000).count();
        let share = long as f64 / lengths.len() as f64;
        assert!((0.11..0.17).contains(&share), "{share}");
        assert!(lengths.iter().max() > Some(&20_000));
    }

    #[test]
    fn a_later_turn_does_not_repeat_the_thoughts() {
        let mut rng = SeededRng::new(1);
        let system = rng.text(10);
        let steps = core::iter::repeat_with(|| conversation(system, &mut rng))
            .find(|steps| steps.len() > 1)
            .unwrap();
        let (first, second) = (&steps[0], &steps[1]);
        let history = first.prompt.pieces().len();
        assert_eq!(second.prompt.pieces()[..history], *first.prompt.pieces());
        let repeated = second.prompt.pieces()[history];
        assert!(repeated.tokens < first.output_tokens);
        assert_ne!(repeated, first.answer());
    }

    #[test]
    fn answers_of_a_bimodal_mix_are_labels_or_thoughts() {
        let of = OpenLoop {
            requests: 4_000,
            requests_per_s: 10.0,
            warmup_requests: 0,
        };
        let workload = bimodal(&of, 1);
        let lengths = lengths(&workload);
        let labels = lengths.iter().filter(|tokens| **tokens <= 40).count();
        assert!((labels as f64 / 4_000.0 - 0.85).abs() < 0.02, "{labels}");
        let between = lengths.iter().filter(|tokens| (41..120).contains(*tokens));
        assert_eq!(between.count(), 0);
        let span = workload.sessions.last().unwrap().starts.as_secs_f64();
        assert!((span - 400.0).abs() < 30.0, "{span}");
    }
}
