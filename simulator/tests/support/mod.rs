//! Helpers of the simulator's tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests: each file is a crate of its own, uses its part, and stops where something is wrong"
)]

use core::time::Duration;
use std::collections::BTreeSet;

use isotherm_engine::model::{Config, Preset};
use isotherm_router::{PolicyName, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Step, Workload};
use isotherm_simulator::{Outcome, ReplicaTotals};

pub fn engine() -> Config {
    Preset::Llama31_8bL4.config()
}

pub fn config(policy: PolicyName) -> RouterConfig {
    RouterConfig {
        policy,
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
        let mut prompt = Prompt::new([Piece { id: 1, tokens: 200 }]);
        let mut steps: Vec<Step> = Vec::new();
        for turn in 0..turns {
            let id = 1_000 * (client + 1) + 2 * turn;
            let answered = steps.last().map(Step::answer);
            prompt = prompt.with(answered.into_iter().chain([Piece { id, tokens: 150 }]));
            let after = steps.len().checked_sub(1);
            steps.push(step(after, 300, prompt.clone(), id + 1));
        }
        Session {
            region: usize::try_from(client).unwrap() % 3,
            key: client,
            follows: None,
            starts: Duration::from_millis(130 * client),
            steps,
        }
    });
    Workload {
        name: "chats".into(),
        sessions: sessions.collect(),
        warmup_requests: 5,
        sends_until: None,
    }
}

pub fn check_conservation(outcome: &Outcome, workload: &Workload) {
    let fails = outcome
        .requests
        .iter()
        .any(|request| !request.is_answered());
    assert!(fails || outcome.requests.len() == workload.requests());
    assert!(outcome.cut == 0 && !outcome.reached_limit);
    for request in &outcome.requests {
        let ends = [
            request.is_answered(),
            request.refused.is_some(),
            request.engine_refused,
        ];
        assert_eq!(ends.iter().filter(|end| **end).count(), 1, "{request:?}");
        if request.is_answered() {
            assert!(request.sent < request.dispatched.unwrap());
            assert!(request.dispatched < request.first_token);
            assert!(request.first_token <= request.ended);
            assert_eq!(request.output_tokens, 20);
        }
    }
    let served: u64 = outcome
        .replicas
        .iter()
        .map(|replica| replica.requests)
        .sum();
    let answered = outcome.requests.iter().filter(|r| r.is_answered()).count();
    assert_eq!(served, answered as u64);
}

/// Every step of every session was sent once, served by one replica, and answered in full.
pub fn check_nothing_lost(name: &str, outcome: &Outcome, workload: &Workload) {
    assert_eq!(outcome.requests.len(), workload.requests(), "{name}");
    assert_eq!(outcome.cut, 0, "{name}");
    let mut sent = BTreeSet::new();
    for request in &outcome.requests {
        let session = &workload.sessions[request.session];
        let step = &session.steps[request.step];
        assert!(
            sent.insert((request.session, request.step)),
            "{name}: sent twice"
        );
        assert!(request.is_answered(), "{name}: {request:?}");
        assert_eq!(request.region, session.region, "{name}");
        assert_eq!(request.prompt_tokens, step.prompt.tokens(), "{name}");
        assert_eq!(request.output_tokens, step.output_tokens, "{name}");
        assert!(
            request.cached_tokens < request.prompt_tokens,
            "{name}: {request:?}"
        );
        assert!(request.replica.is_some(), "{name}: {request:?}");
        let order = [
            Some(request.sent),
            request.dispatched,
            request.first_token,
            request.ended,
        ];
        assert!(order.is_sorted(), "{name}: {request:?}");
    }
    let sum = |of: fn(&ReplicaTotals) -> u64| -> u64 { outcome.replicas.iter().map(of).sum() };
    let asked: u64 = outcome
        .requests
        .iter()
        .map(|r| u64::from(r.output_tokens))
        .sum();
    assert_eq!(
        sum(|replica| replica.requests),
        outcome.requests.len() as u64,
        "{name}"
    );
    assert!(sum(|replica| replica.output_tokens) >= asked, "{name}");
}
