//! Agents that call tools: long system prompts, two of them very hot. The stand-in for Mooncake's Tool&Agent trace, as DualMap
//! describes it (A.1.1, Table 1, Figure 14):
//!
//! - mean prompt 8,596 tokens, mean answer 182; 59 % of all prompt tokens were in an earlier prompt
//! - of 76 % of the requests, at least half of the prompt was in an earlier one
//! - two prompts are abnormally popular: 14.9 % of the requests differ only from their 6th block of 512 tokens on, 37.8 % from
//!   their 13th
//!
//! So two hot tools have prompts of 2,900 and 6,400 tokens with the caller's text behind; the other 47.3 % are agents in
//! sessions of 1.8 requests on average, on one of 300 tools (Zipf), each request with the last answer and the tool's result.
//! Open loop, Poisson at a rate. A test checks that the whole has those figures.

use super::replay::duration;
use super::rng::{LogNormal, SeededRng, Zipf};
use super::{OpenLoop, Session, Step, Workload};
use crate::prompt::{Piece, Prompt};

/// The usual number of requests and their usual rate.
pub const USUAL: OpenLoop = OpenLoop {
    requests: 4_000,
    requests_per_s: 12.0,
    warmup_requests: 500,
};
/// The hot tools: share of the requests, length of the prompt.
const HOT: [(f64, u32); 2] = [(0.149, 2_900), (0.378, 6_400)];
const HOT_TEXT: LogNormal = LogNormal::new(1_500.0, 1.0);
const TOOLS: usize = 300;
const TOOLS_EXPONENT: f64 = 1.0;
const TOOL: LogNormal = LogNormal::new(1_800.0, 0.5);
const TASK: LogNormal = LogNormal::new(3_000.0, 1.2);
const RESULT: LogNormal = LogNormal::new(900.0, 0.9);
const ANSWER: LogNormal = LogNormal::new(110.0, 1.0);
const ANSWER_TOKENS: (u32, u32) = (2, 2_000);
const TEXT_TOKENS: (u32, u32) = (16, 60_000);
const PROMPT_TOKENS_MAX: u32 = 100_000;
/// An agent calls again with this probability, after so long on average.
const GOES_ON: f64 = 0.45;
const CALLS_MAX: usize = 20;
const PAUSE_S: f64 = 15.0;
/// Agents of so long before are under way at the start.
const BEFORE_S: f64 = 60.0;

/// The workload of a seed.
pub fn generate(of: &OpenLoop, seed: u64) -> Workload {
    let mut rng = SeededRng::new(seed);
    let hot = HOT.map(|(share, tokens)| (share, rng.text(tokens)));
    let tools: Vec<Piece> = (0..TOOLS)
        .map(|_| TOOL.text(&mut rng, TEXT_TOKENS))
        .collect();
    let popularity = Zipf::new(TOOLS, TOOLS_EXPONENT);
    let hot_share: f64 = hot.iter().map(|(share, _)| share).sum();
    // Sessions of agents count for several requests, so fewer of the arrivals are agents'.
    let calls_mean = 1.0 / (1.0 - GOES_ON);
    let agents = (1.0 - hot_share) / calls_mean;
    let arrivals_per_s = of.requests_per_s * (hot_share + agents);
    // Agents are under way at the start, and the last requests are those of the time, not those of late agents.
    let ends = 1.05 * of.requests as f64 / of.requests_per_s;
    let (mut sessions, mut at) = (Vec::with_capacity(of.requests), -BEFORE_S);
    while at < ends || sessions.len() < of.requests {
        at += rng.exponential(1.0 / arrivals_per_s);
        let mut which = rng.unit() * (hot_share + agents);
        let called = hot.iter().find(|(share, _)| {
            which -= share;
            which <= 0.0
        });
        if let (Some((_, tool)), true) = (called, at >= 0.0) {
            let prompt = Prompt::new([*tool, HOT_TEXT.text(&mut rng, TEXT_TOKENS)]);
            let key = rng.key();
            sessions.push(request(at, key, prompt, &mut rng));
        } else if called.is_none()
            && let Some(tool) = tools.get(popularity.sample(&mut rng))
        {
            agent(at, *tool, &mut rng, &mut sessions);
        }
    }
    sessions.sort_by_key(|session| session.starts);
    sessions.truncate(of.requests);
    of.workload("tools", sessions)
}

/// The calls of one agent.
fn agent(starts: f64, tool: Piece, rng: &mut SeededRng, sessions: &mut Vec<Session>) {
    let (key, mut at) = (rng.key(), starts);
    let mut prompt = Prompt::new([tool, TASK.text(rng, TEXT_TOKENS)]);
    for _ in 0..rng.repeats(GOES_ON, CALLS_MAX) {
        if prompt.tokens() > PROMPT_TOKENS_MAX {
            return;
        }
        let call = request(at, key, prompt.clone(), rng);
        let answer = call.steps.first().map(Step::answer);
        if at >= 0.0 {
            sessions.push(call);
        }
        let result = RESULT.text(rng, TEXT_TOKENS);
        prompt = prompt.with(answer.into_iter().chain([result]));
        at += rng.exponential(PAUSE_S);
    }
}

fn request(at: f64, key: u64, prompt: Prompt, rng: &mut SeededRng) -> Session {
    let answer = ANSWER.text(rng, ANSWER_TOKENS);
    Session::one(key, duration(at), prompt, answer)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;

    #[test]
    fn the_twin_has_the_figures_of_the_trace() {
        let of = OpenLoop {
            requests: 8_000,
            ..USUAL
        };
        let workload = generate(&of, 1);
        let prompts: Vec<&Prompt> = workload
            .sessions
            .iter()
            .map(|session| &session.steps[0].prompt)
            .collect();
        let answers: f64 = workload
            .sessions
            .iter()
            .map(|session| f64::from(session.steps[0].output_tokens))
            .sum();
        let mut known: HashSet<Vec<Piece>> = HashSet::new();
        let mut first: BTreeMap<u64, u32> = BTreeMap::new();
        let (mut all, mut seen, mut half) = (0.0, 0.0, 0.0);
        for prompt in &prompts {
            let pieces = prompt.pieces();
            *first.entry(pieces[0].id).or_default() += 1;
            let shared: u32 = (1..=pieces.len())
                .take_while(|end| known.contains(&pieces[..*end]))
                .map(|end| pieces[end - 1].tokens)
                .sum();
            (1..=pieces.len()).for_each(|end| {
                known.insert(pieces[..end].to_vec());
            });
            all += f64::from(prompt.tokens());
            seen += f64::from(shared);
            half += f64::from(u8::from(shared * 2 >= prompt.tokens()));
        }
        let mut counts: Vec<u32> = first.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        println!(
            "prompt {}, answer {}, seen {}, half {}, hot {:?}",
            all / 8_000.0,
            answers / 8_000.0,
            seen / all,
            half / 8_000.0,
            &counts[..4]
        );
        assert!((all / 8_000.0 / 8_596.0 - 1.0).abs() < 0.06);
        assert!((answers / 8_000.0 / 182.0 - 1.0).abs() < 0.06);
        assert!((seen / all - 0.59).abs() < 0.03);
        assert!((half / 8_000.0 - 0.76).abs() < 0.03);
        assert!((f64::from(counts[0]) / 8_000.0 - 0.378).abs() < 0.02);
        assert!((f64::from(counts[1]) / 8_000.0 - 0.149).abs() < 0.02);
        assert!(f64::from(counts[2]) / 8_000.0 < 0.10);
    }

    #[test]
    fn requests_come_at_the_rate() {
        let workload = generate(&USUAL, 1);
        let span = workload.sessions.last().unwrap().starts.as_secs_f64();
        assert_eq!(workload.sessions.len(), 4_000);
        assert!((4_000.0 / span / 12.0 - 1.0).abs() < 0.08, "{span}");
    }
}
