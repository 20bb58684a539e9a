//! Tree of Thoughts on grade-school mathematics, as SkyLB plays it (section 5.1): every question becomes a tree of depth four,
//! of 15 requests with two branches and of 85 with four. A node asks for a next step behind the thoughts on its way from the
//! root; the nodes of a level run at once, as soon as their parent has answered. The question is the session key. A client
//! begins its next tree when the last is whole.
//!
//! Lengths: the instructions with their worked examples, which all trees share, have 540 tokens, a question has 100 with its
//! frame (GSM8K: some 60), a thought 110, and the request for another one 20. Published are hit ratios only: 59 % for policies
//! that find nothing but what all trees share, and 90 % where a tree stays together. With these lengths 58 % of all prompt
//! tokens are instructions, and 97 % have been sent or generated before: the same picture, less what caches forget.

use core::time::Duration;

use super::rng::{LogNormal, SeededRng};
use super::{Session, Step, Workload};
use crate::prompt::{Piece, Prompt};

/// Clients of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeClients {
    /// Number of clients, each with a single tree at a time.
    pub clients: usize,
    /// Children of a node.
    pub branches: usize,
}

/// Trees of thoughts.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeOfThoughts {
    /// The workload's name.
    pub name: &'static str,
    /// Clients of each region.
    pub regions: Vec<TreeClients>,
    /// End of sending.
    pub duration: Duration,
    /// Length of a thought.
    pub thought: LogNormal,
    /// Length of the text that asks for the next step, in tokens.
    pub ask_tokens: u32,
}

/// Levels of a tree.
const LEVELS: u32 = 4;
/// Length of the beginning that all trees share.
const INSTRUCTIONS_TOKENS: u32 = 540;
const QUESTION: LogNormal = LogNormal::new(95.0, 0.35);
const QUESTION_TOKENS: (u32, u32) = (30, 400);
const THOUGHT_TOKENS: (u32, u32) = (20, 400);
/// No tree is done faster than this, so a run has enough of them.
const TREE_S_MIN: f64 = 8.0;
/// Clients begin within this time.
const ARRIVAL_S: f64 = 5.0;

impl TreeOfThoughts {
    /// Two branches: 40 clients in the first region, 20 in each of two others.
    pub fn uniform() -> Self {
        let two = |clients| TreeClients {
            clients,
            branches: 2,
        };
        Self::new("tot-2", vec![two(40), two(20), two(20)])
    }

    /// Two clients with four branches in the first region, 20 with two in each of two others.
    pub fn mixed() -> Self {
        let clients = |clients, branches| TreeClients { clients, branches };
        Self::new(
            "tot-mixed",
            vec![clients(2, 4), clients(20, 2), clients(20, 2)],
        )
    }

    /// A workload of these clients, with every default.
    pub fn new(name: &'static str, regions: Vec<TreeClients>) -> Self {
        Self {
            name,
            regions,
            duration: Duration::from_secs(120),
            thought: LogNormal::new(104.0, 0.35),
            ask_tokens: 20,
        }
    }

    /// The workload of this seed.
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let instructions = rng.text(INSTRUCTIONS_TOKENS);
        let trees = (self.duration.as_secs_f64() / TREE_S_MIN).ceil() as usize;
        let mut sessions: Vec<Session> = Vec::new();
        for (region, of) in self.regions.iter().enumerate() {
            for _ in 0..of.clients {
                let mut follows = None;
                let mut starts = rng.unit() * ARRIVAL_S;
                for _ in 0..trees.max(1) {
                    let key = rng.key();
                    let steps = self.tree(instructions, of.branches, &mut rng);
                    sessions.push(Session {
                        region,
                        follows,
                        ..Session::new(key, Duration::from_secs_f64(starts), steps)
                    });
                    follows = Some(sessions.len() - 1);
                    starts = 0.0;
                }
            }
        }
        Workload {
            name: self.name.to_owned(),
            warmup_requests: self.regions.iter().map(|of| of.clients).sum(),
            sends_until: Some(self.duration),
            sessions,
        }
    }

    /// A tree, level by level.
    fn tree(&self, instructions: Piece, branches: usize, rng: &mut SeededRng) -> Vec<Step> {
        let root = Prompt::new([instructions, QUESTION.text(rng, QUESTION_TOKENS)]);
        let mut steps = vec![self.node(None, root, rng)];
        let mut level = 0..1;
        for _ in 1..LEVELS {
            let end = steps.len();
            for parent in level {
                let thoughts = steps
                    .get(parent)
                    .map(|step| step.prompt.with([step.answer()]));
                let thoughts = thoughts.unwrap_or_default();
                for _ in 0..branches {
                    let prompt = thoughts.with([rng.text(self.ask_tokens)]);
                    steps.push(self.node(Some(parent), prompt, rng));
                }
            }
            level = end..steps.len();
        }
        steps
    }

    fn node(&self, after: Option<usize>, prompt: Prompt, rng: &mut SeededRng) -> Step {
        Step {
            after,
            think: Duration::ZERO,
            prompt,
            output_tokens: self.thought.tokens(rng, THOUGHT_TOKENS),
            answer_id: rng.id(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_the_papers_number_of_requests() {
        let mixed = TreeOfThoughts::mixed().generate(1);
        let sizes = |region| {
            let of = mixed
                .sessions
                .iter()
                .filter(|session| session.region == region);
            of.map(|session| session.steps.len())
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(sizes(0), [85].into());
        assert_eq!(sizes(1), [15].into());
        let clients = mixed
            .sessions
            .iter()
            .filter(|session| session.follows.is_none());
        assert_eq!(clients.count(), 42);
    }

    #[test]
    fn a_thought_continues_its_path_from_the_root() {
        let workload = TreeOfThoughts::uniform().generate(1);
        let steps = &workload.sessions[0].steps;
        for step in &steps[1..] {
            let parent = &steps[step.after.unwrap()];
            let way = parent.prompt.with([parent.answer()]);
            assert_eq!(step.prompt.pieces()[..way.pieces().len()], *way.pieces());
        }
        let leaves = steps
            .iter()
            .filter(|step| step.prompt.pieces().len() == 2 + 3 * 2);
        assert_eq!(leaves.count(), 8);
    }

    #[test]
    fn half_of_all_tokens_are_instructions_and_nearly_all_were_seen_before() {
        let workload = TreeOfThoughts::uniform().generate(1);
        let (mut all, mut new) = (0, 0);
        for session in &workload.sessions {
            for step in &session.steps {
                let before = step.after.map_or(540, |parent| {
                    let parent = &session.steps[parent];
                    parent.prompt.tokens() + parent.output_tokens
                });
                all += step.prompt.tokens();
                new += step.prompt.tokens() - before;
            }
        }
        let all = f64::from(all);
        let instructions = workload.requests() as f64 * 540.0 / all;
        let seen = 1.0 - f64::from(new) / all;
        println!("instructions {instructions}, seen {seen}");
        assert!((instructions - 0.58).abs() < 0.02, "{instructions}");
        assert!((seen - 0.97).abs() < 0.01, "{seen}");
    }
}
