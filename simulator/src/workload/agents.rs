//! Programs of agents: a main agent that calls tools, and sub-agents that it starts for parts of its task.
//!
//! All main agents share their instructions and tools, and so do all sub-agents. Each turn repeats the whole context and adds the last
//! answer and the result of a tool, which takes 1 to 60 s. At 100,000 tokens the agent goes on with a summary of its context, as coding agents do.
//! A main agent that starts sub-agents waits for the one with the most turns, and reads its report. Closed loop: the contexts of all
//! programs together are larger than the caches of the fleet, so caches hold a context over a call of a tool or lose it.
//!
//! Lengths are chosen after what coding agents show: short answers, results of about a thousand tokens with a long tail, and contexts that
//! grow over dozens of turns.

use core::time::Duration;

use super::rng::{LogNormal, SeededRng, within};
use super::{Session, Step, Workload};
use crate::prompt::{Piece, Prompt};

/// Programs of agents.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agents {
    /// Number of programs, all of which run at once.
    pub programs: usize,
    /// Time in which programs begin.
    pub arrival: Duration,
    /// Number of first requests that only warm the caches.
    pub warmup_requests: usize,
    /// End of sending.
    pub duration: Duration,
}

/// Tokens at which an agent goes on with a summary, its next answer and result included.
const CONTEXT_TOKENS_MAX: u32 = 100_000;
const MAIN_INSTRUCTIONS_TOKENS: u32 = 14_000;
const SUB_INSTRUCTIONS_TOKENS: u32 = 5_000;
const SUMMARY_TOKENS: u32 = 3_000;
/// Longest context of a program before its first turn, beyond its instructions and its task.
const HISTORY_TOKENS_MAX: u32 = 40_000;
const TASK: LogNormal = LogNormal::new(1_500.0, 1.0);
const RESULT: LogNormal = LogNormal::new(1_200.0, 1.2);
const ANSWER: LogNormal = LogNormal::new(120.0, 0.9);
const TASK_TOKENS: (u32, u32) = (50, 20_000);
const RESULT_TOKENS: (u32, u32) = (20, 20_000);
const ANSWER_TOKENS: (u32, u32) = (10, 2_000);
const MAIN_TURNS: (u32, u32) = (8, 60);
const MAIN_TURNS_MEDIAN: LogNormal = LogNormal::new(22.0, 0.5);
const SUB_TURNS: (u32, u32) = (2, 12);
const SUB_TURNS_MEDIAN: LogNormal = LogNormal::new(5.0, 0.5);
/// Share of the turns of a main agent that start sub-agents, and how many of them.
const DELEGATES: f64 = 0.08;
const SUB_AGENTS: (u32, u32) = (1, 4);
/// Time of a tool in seconds.
const TOOL: LogNormal = LogNormal::new(4.0, 1.2);
const TOOL_S: (f64, f64) = (1.0, 60.0);

/// An agent between two turns.
struct Agent {
    instructions: Piece,
    prompt: Prompt,
    /// Step whose answer comes before its next turn.
    after: Option<usize>,
}

impl Agents {
    /// The workload of this seed.
    pub fn generate(&self, seed: u64) -> Workload {
        let mut rng = SeededRng::new(seed);
        let main = rng.text(MAIN_INSTRUCTIONS_TOKENS);
        let sub = rng.text(SUB_INSTRUCTIONS_TOKENS);
        let program = |_| {
            let (key, starts) = (rng.key(), self.arrival.mul_f64(rng.unit()));
            Session::new(key, starts, steps(main, sub, &mut rng))
        };
        let mut sessions: Vec<Session> = (0..self.programs).map(program).collect();
        sessions.sort_by_key(|session| session.starts);
        Workload {
            name: "agents".to_owned(),
            sessions,
            warmup_requests: self.warmup_requests,
            sends_until: Some(self.duration),
        }
    }
}

/// The turns of a program.
fn steps(main: Piece, sub: Piece, rng: &mut SeededRng) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut agent = Agent::new(main, None, rng);
    // Programs are under way.
    let history = (rng.unit() * f64::from(HISTORY_TOKENS_MAX)) as u32;
    agent.prompt = agent.prompt.with([rng.text(history.max(1))]);
    for _ in 0..MAIN_TURNS_MEDIAN.tokens(rng, MAIN_TURNS) {
        agent.turn(&mut steps, rng);
        if rng.chance(DELEGATES) {
            let report = delegate(sub, agent.after, &mut steps, rng);
            agent.read(report, rng);
            agent.after = report.map(|(step, _)| step).or(agent.after);
        }
    }
    steps
}

/// Sub-agents that begin behind a step; the step and the answer for which the main agent waits.
fn delegate(
    sub: Piece,
    after: Option<usize>,
    steps: &mut Vec<Step>,
    rng: &mut SeededRng,
) -> Option<(usize, Piece)> {
    let mut longest: Option<(u32, usize)> = None;
    let (least, most) = SUB_AGENTS;
    let count = within(
        f64::from(least) + rng.unit() * f64::from(most - least + 1),
        SUB_AGENTS,
    );
    for _ in 0..count {
        let mut agent = Agent::new(sub, after, rng);
        let turns = SUB_TURNS_MEDIAN.tokens(rng, SUB_TURNS);
        for _ in 0..turns {
            agent.turn(steps, rng);
        }
        let last = steps.len().saturating_sub(1);
        if longest.is_none_or(|(most, _)| turns > most) {
            longest = Some((turns, last));
        }
    }
    let (_, step) = longest?;
    Some((step, steps.get(step)?.answer()))
}

impl Agent {
    fn new(instructions: Piece, after: Option<usize>, rng: &mut SeededRng) -> Self {
        Self {
            instructions,
            prompt: Prompt::new([instructions, TASK.text(rng, TASK_TOKENS)]),
            after,
        }
    }

    /// Appends a turn; the context then has its answer and the result of a tool.
    fn turn(&mut self, steps: &mut Vec<Step>, rng: &mut SeededRng) {
        let think = if self.after.is_some() {
            tool_s(rng)
        } else {
            0.0
        };
        let step = Step {
            after: self.after,
            think: Duration::from_secs_f64(think),
            prompt: self.prompt.clone(),
            output_tokens: ANSWER.tokens(rng, ANSWER_TOKENS),
            answer_id: rng.id(),
        };
        let more = [step.answer(), RESULT.text(rng, RESULT_TOKENS)];
        steps.push(step);
        self.after = steps.len().checked_sub(1);
        self.grow(more, rng);
    }

    /// Adds the report of a sub-agent to the context.
    fn read(&mut self, report: Option<(usize, Piece)>, rng: &mut SeededRng) {
        if let Some((_, report)) = report {
            self.grow([report], rng);
        }
    }

    fn grow<const N: usize>(&mut self, more: [Piece; N], rng: &mut SeededRng) {
        let grown = self.prompt.with(more);
        self.prompt = if grown.tokens() + ANSWER_TOKENS.1 > CONTEXT_TOKENS_MAX {
            Prompt::new([self.instructions, rng.text(SUMMARY_TOKENS)])
        } else {
            grown
        };
    }
}

fn tool_s(rng: &mut SeededRng) -> f64 {
    TOOL.sample(rng).clamp(TOOL_S.0, TOOL_S.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs() -> Vec<Session> {
        let agents = Agents {
            programs: 60,
            arrival: Duration::from_secs(60),
            warmup_requests: 0,
            duration: Duration::from_secs(700),
        };
        agents.generate(1).sessions
    }

    #[test]
    fn contexts_grow_to_the_bound_and_tools_take_their_time() {
        let sessions = programs();
        let steps = || sessions.iter().flat_map(|session| &session.steps);
        let longest = steps()
            .map(|step| step.prompt.tokens() + step.output_tokens)
            .max();
        assert!(
            (80_000..=CONTEXT_TOKENS_MAX).contains(&longest.unwrap()),
            "{longest:?}"
        );
        let later = steps().filter(|step| step.after.is_some());
        assert!(
            later
                .clone()
                .all(|step| (1.0..=60.0).contains(&step.think.as_secs_f64()))
        );
        let mean = later
            .clone()
            .map(|step| step.think.as_secs_f64())
            .sum::<f64>()
            / later.count() as f64;
        assert!((4.0..12.0).contains(&mean), "{mean}");
    }

    #[test]
    fn sub_agents_begin_together_and_the_main_agent_reads_a_report() {
        let sessions = programs();
        let mut branches = 0;
        for session in &sessions {
            let is_after = |step: usize| {
                session
                    .steps
                    .iter()
                    .filter(move |one| one.after == Some(step))
            };
            branches += (0..session.steps.len())
                .filter(|step| is_after(*step).count() > 1)
                .count();
            let main = session.steps[0].prompt.pieces()[0];
            let last_of_main = session
                .steps
                .iter()
                .rev()
                .find(|step| step.prompt.pieces()[0] == main);
            assert!(last_of_main.is_some());
        }
        assert!(branches > 20, "{branches}");
    }
}
