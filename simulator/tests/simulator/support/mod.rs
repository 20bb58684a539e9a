//! Helpers of the simulator's tests.
#![allow(unreachable_pub, reason = "the tests are one program")]

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_engine::model::{Config, Preset};
use isotherm_policies::PolicyName;
use isotherm_router::RouterConfig;
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Step, Workload};
use isotherm_simulator::{Outcome, Setup, run};

pub fn engine() -> Config {
    Preset::Llama31_8bL4.config()
}

pub fn config(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        ..RouterConfig::default()
    }
}

pub fn step(after: Option<usize>, think_ms: u64, prompt: Prompt, answer_id: u64) -> Step {
    Step {
        after,
        think: Duration::from_millis(think_ms),
        prompt,
        output_tokens: 20,
        answer_id,
    }
}

/// Clients that each hold a conversation of some turns, behind a system prompt that all share.
pub fn chats(clients: u64, turns: u64) -> Workload {
    let sessions = (0..clients).map(|client| {
        let mut prompt = Prompt::new([Piece::new(1, 200)]);
        let mut steps: Vec<Step> = Vec::new();
        for turn in 0..turns {
            let id = 1_000 * (client + 1) + 2 * turn;
            let answered = steps.last().map(Step::answer);
            prompt = prompt.with(answered.into_iter().chain([Piece::new(id, 150)]));
            let after = steps.len().checked_sub(1);
            steps.push(step(after, 300, prompt.clone(), id + 1));
        }
        Session {
            region: usize::try_from(client).unwrap() % 3,
            ..Session::new(client, Duration::from_millis(130 * client), steps)
        }
    });
    Workload {
        name: "chats".into(),
        sessions: sessions.collect(),
        warmup_requests: 5,
        sends_until: None,
    }
}

/// A request that waits for no response.
pub fn single(client: u64, starts: Duration, prompt: Prompt) -> Session {
    let answer = Piece::new(1_000_000 + client, 20);
    Session::one(client, starts, prompt, answer)
}

pub fn workload(sessions: impl IntoIterator<Item = Session>) -> Workload {
    Workload {
        sessions: sessions.into_iter().collect(),
        ..Workload::default()
    }
}

/// Requests that the replicas of a region served.
pub fn served_by(outcome: &Outcome, region: usize) -> u64 {
    let all = outcome.replicas.iter();
    all.filter(|replica| replica.region == region)
        .map(|replica| replica.requests)
        .sum()
}

/// Runs a workload and checks that the clients send every step once, that every request ends once, and that its times are in
/// order.
pub fn run_checked(name: &str, setup: &Setup, workload: &Workload) -> Outcome {
    let outcome = run(setup, workload);
    assert!(outcome.cut == 0 && !outcome.reached_limit, "{name}: cut");
    let requests = &outcome.requests;
    let by_step = requests.iter().map(|r| ((r.session, r.step), r));
    let by_step: BTreeMap<_, _> = by_step.collect();
    assert_eq!(by_step.len(), requests.len(), "{name}: sent twice");
    for request in requests {
        let session = &workload.sessions[request.session];
        let step = &session.steps[request.step];
        let ends = [
            request.is_answered(),
            request.refused.is_some(),
            request.engine_refused,
        ];
        let ends = ends.iter().filter(|end| **end).count();
        assert_eq!(ends, 1, "{name}: {request:?}");
        let ended = request.ended.unwrap();
        assert!(ended >= request.sent, "{name}: {request:?}");
        if let Some(after) = step.after {
            let awaited = by_step[&(request.session, after)];
            assert!(awaited.is_answered(), "{name}: a failure ends the session");
            assert_eq!(request.sent, awaited.ended.unwrap() + step.think, "{name}");
        } else if session.follows.is_none() {
            assert_eq!(request.sent, session.starts + step.think, "{name}");
        }
        if request.is_answered() {
            assert_eq!(request.output_tokens, step.output_tokens, "{name}");
            assert!(request.cached_tokens < request.prompt_tokens, "{name}");
            assert!(request.sent < request.dispatched.unwrap(), "{name}");
            assert!(request.dispatched < request.first_token, "{name}");
            assert!(request.first_token <= request.ended, "{name}");
        }
    }
    let answered = requests.iter().filter(|r| r.is_answered()).count();
    let served: u64 = outcome.replicas.iter().map(|r| r.requests).sum();
    assert_eq!(served, answered as u64, "{name}");
    if answered == requests.len() && workload.sends_until.is_none() {
        assert_eq!(requests.len(), workload.requests(), "{name}");
    }
    outcome
}

/// Runs a workload as [`run_checked`] and checks that one replica answers each request in full.
pub fn run_whole(name: &str, setup: &Setup, workload: &Workload) -> Outcome {
    let outcome = run_checked(name, setup, workload);
    assert_eq!(outcome.requests.len(), workload.requests(), "{name}");
    for request in &outcome.requests {
        let session = &workload.sessions[request.session];
        let prompt = &session.steps[request.step].prompt;
        assert!(request.is_answered(), "{name}: {request:?}");
        assert!(request.replica.is_some(), "{name}: {request:?}");
        assert_eq!(request.region, session.region, "{name}");
        assert_eq!(request.prompt_tokens, prompt.tokens(), "{name}");
    }
    let asked = outcome.requests.iter().map(|r| u64::from(r.output_tokens));
    let generated = outcome.replicas.iter().map(|r| r.output_tokens);
    assert!(generated.sum::<u64>() >= asked.sum(), "{name}");
    outcome
}
