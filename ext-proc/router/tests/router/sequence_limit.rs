//! An engine that runs its most requests at once gets nothing until one of them ends, though it has memory left.

use std::collections::VecDeque;

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{Event, Load, Push, RequestId, RouterConfig};

/// Requests that the engine runs at once.
const LIMIT: usize = 4;

/// A router in front of one engine, with more requests than the engine runs.
struct LimitedEngine {
    script: Script,
    running: VecDeque<u64>,
    pending: VecDeque<u64>,
}

impl LimitedEngine {
    fn new() -> Self {
        let config = RouterConfig {
            push: Push::Pending,
            ..RouterConfig::default()
        };
        let mut script = Script::new(config, 1);
        script.probe(0, 0);
        for id in 0..200 {
            script.arrive(request(id, id, &[id]));
        }
        Self {
            script,
            running: VecDeque::new(),
            pending: VecDeque::new(),
        }
    }

    /// Admits what was sent, answers a probe, and lets the oldest request end. Returns the running and the pending requests
    /// before that.
    fn step(&mut self) -> (usize, usize) {
        self.script.sleep(300);
        self.admit();
        self.script.probe_load(
            0,
            Load {
                pending: u32::try_from(self.pending.len()).unwrap(),
                running: Some(u32::try_from(self.running.len()).unwrap()),
                kv_usage: Some(0.3),
                ..Load::default()
            },
        );
        self.admit();
        let requests = (self.running.len(), self.pending.len());
        if let Some(ended) = self.running.pop_front() {
            self.script.finish(ended);
        }
        self.admit();
        requests
    }

    fn admit(&mut self) {
        let sent = self.script.sent();
        self.pending.extend(sent.into_iter().map(|(id, _)| id));
        while self.running.len() < LIMIT
            && let Some(id) = self.pending.pop_front()
        {
            self.script.event(Event::Began(RequestId(id)));
            self.running.push_back(id);
        }
    }
}

#[test]
fn an_engine_at_its_limit_gets_a_request_when_one_ends() {
    let mut engine = LimitedEngine::new();
    let learned: Vec<_> = (0..20).map(|_| engine.step()).collect();
    assert!(
        learned.iter().any(|(_, pending)| *pending > 0),
        "the limit is learned from requests that wait"
    );
    let later: Vec<_> = (0..40).map(|_| engine.step()).collect();
    assert!(later.iter().all(|(running, _)| *running == LIMIT));
    let waits = later.iter().filter(|(_, pending)| *pending > 0).count();
    assert!(waits <= 3, "one more is tried after 2, 4 and 8 s: {waits}");
}
