//! A replica that accepts requests and never answers, beside others that go on.

use std::collections::BTreeMap;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    Availability, Effect, EngineCounters, Event, Load, Push, ReplicaId, Request, RequestId,
    RouterConfig, Total,
};

const REPLICAS: u32 = 4;
const HUNG: u32 = 0;
/// Time between two probes.
const STEP_MS: u64 = 100;

/// Four engines behind a router. Each answers at once, except for the hung one.
struct Pool {
    script: Script,
    next: u64,
    hung: Option<u32>,
    /// Use of the hung one's memory; `None` from engines that do not tell it.
    memory: Option<f32>,
    /// Growth of that use with each probe.
    memory_step: f32,
    /// Output tokens that each engine has counted; empty for engines without counters.
    written: BTreeMap<u32, f64>,
    /// Requests at the hung replica, with the time of each dispatch in milliseconds.
    stuck: Vec<(u64, u64)>,
    abandoned: Vec<u64>,
    now_ms: u64,
}

impl Pool {
    fn new(push: Push, has_counters: bool) -> Self {
        let config = RouterConfig {
            policy: PolicyName::RoundRobin.into(),
            push,
            ..RouterConfig::default()
        };
        let mut pool = Self {
            script: Script::new(config, REPLICAS),
            next: 0,
            hung: None,
            memory: None,
            memory_step: 0.0,
            written: (0..REPLICAS)
                .filter(|_| has_counters)
                .map(|replica| (replica, 0.0))
                .collect(),
            stuck: Vec::new(),
            abandoned: Vec::new(),
            now_ms: 0,
        };
        pool.run(2_000, 1);
        pool
    }

    /// Lets time pass, in which requests arrive at each step and probes succeed.
    fn run(&mut self, ms: u64, arrivals: u32) {
        for _ in 0..ms / STEP_MS {
            self.script.sleep(STEP_MS);
            self.now_ms += STEP_MS;
            for replica in 0..REPLICAS {
                self.probe(replica);
            }
            (0..arrivals).for_each(|_| self.send(true));
        }
    }

    fn probe(&mut self, replica: u32) {
        let is_hung = self.hung == Some(replica);
        if let Some(memory) = self.memory.as_mut().filter(|_| is_hung) {
            *memory += self.memory_step;
        }
        let load = Load {
            running: Some(u32::from(is_hung)),
            kv_usage: self.memory.filter(|_| is_hung),
            ..Load::default()
        };
        self.script.probe_load(replica, load);
        if let Some(tokens) = self.written.get_mut(&replica) {
            *tokens += if is_hung { 0.0 } else { 10.0 };
            let counters = EngineCounters {
                generation_tokens: Some(*tokens),
                decode: Some(Total {
                    seconds: 0.0,
                    count: 0.0,
                }),
                ..EngineCounters::default()
            };
            self.script.event(Event::CountersReported {
                replica: ReplicaId(replica),
                counters,
                sent: self.script.now,
            });
        }
        self.take_effects();
    }

    fn send(&mut self, tells_start: bool) {
        let id = self.next;
        self.next += 1;
        self.script.arrive(Request {
            tells_start,
            ..request(id, id, &[id])
        });
        self.take_effects();
    }

    fn take_effects(&mut self) {
        for effect in self.script.effects() {
            match effect {
                Effect::Dispatch(id, decision) if self.hung == Some(decision.replica.0) => {
                    self.stuck.push((id.0, self.now_ms));
                }
                Effect::Dispatch(id, _) => {
                    self.script.event(Event::Began(id));
                    self.script.finish(id.0);
                }
                Effect::Hung { replica, abandoned } => {
                    assert_eq!(Some(replica.0), self.hung);
                    // The frontends end them, and report each end.
                    for id in abandoned {
                        self.abandoned.push(id.0);
                        self.script.abort(id.0);
                    }
                }
                Effect::Forward(..) | Effect::Reject { .. } => {}
            }
        }
    }

    /// Dispatches to the hung replica after this time.
    fn dispatched_after(&self, ms: u64) -> usize {
        let late = self.stuck.iter().filter(|(_, at)| *at > ms);
        late.count()
    }
}

#[test]
fn a_hung_replica_gets_nothing_new_after_ten_seconds_and_its_requests_end() {
    for push in [Push::Pending, Push::Blind] {
        let mut pool = Pool::new(push, true);
        pool.hung = Some(HUNG);
        let hung_at = pool.now_ms;
        pool.run(10_500, 4);
        assert!(!pool.stuck.is_empty());
        assert_eq!(pool.script.availability(HUNG), Availability::Hung);
        pool.run(10_000, 4);
        assert_eq!(pool.dispatched_after(hung_at + 10_500), 0, "{push:?}");
        let mut stuck: Vec<u64> = pool.stuck.iter().map(|(id, _)| *id).collect();
        stuck.sort_unstable();
        assert_eq!(pool.abandoned, stuck, "each exactly once");
        let counters = pool.script.stats().counters;
        assert_eq!(counters.hung_replicas, 1);
        assert_eq!(counters.abandoned, stuck.len() as u64);
    }
}

#[test]
fn a_hung_replica_gets_one_trial_at_a_time_and_returns_when_it_responds_again() {
    let mut pool = Pool::new(Push::Pending, true);
    pool.hung = Some(HUNG);
    pool.run(10_500, 1);
    let before = pool.stuck.len();
    pool.run(26_000, 4);
    assert_eq!(pool.stuck.len() - before, 1, "one trial, which ends, too");
    assert_eq!(pool.abandoned.len(), pool.stuck.len());
    pool.hung = None;
    pool.run(16_500, 4);
    assert_eq!(pool.script.availability(HUNG), Availability::Available);
}

#[test]
fn a_replica_without_counters_that_answers_nothing_gets_nothing_new_either() {
    let mut pool = Pool::new(Push::Pending, false);
    pool.hung = Some(HUNG);
    pool.run(10_500, 1);
    assert_eq!(pool.script.availability(HUNG), Availability::Hung);
    assert!(
        pool.abandoned.is_empty(),
        "a long answer that is not streamed looks alike"
    );
}

#[test]
fn the_requests_of_a_replica_that_answers_no_probe_either_end() {
    let mut pool = Pool::new(Push::Pending, false);
    pool.hung = Some(HUNG);
    pool.run(500, 4);
    for _ in 0..102 {
        pool.script.sleep(STEP_MS);
        pool.now_ms += STEP_MS;
        pool.script.probe_fails(HUNG);
        pool.take_effects();
        (1..REPLICAS).for_each(|replica| pool.probe(replica));
        pool.send(true);
    }
    assert!(!pool.stuck.is_empty());
    assert_eq!(pool.abandoned.len(), pool.stuck.len());
}

#[test]
fn engine_counters_that_stand_still_while_answers_are_written_show_a_hung_replica() {
    let mut pool = Pool::new(Push::Pending, true);
    pool.hung = Some(HUNG);
    pool.run(STEP_MS, 4);
    let begun: Vec<u64> = pool.stuck.iter().map(|(id, _)| *id).collect();
    assert!(!begun.is_empty());
    for id in begun {
        pool.script.event(Event::Began(RequestId(id)));
    }
    let busy = pool.stuck.len();
    for _ in 0..102 {
        pool.run(STEP_MS, 0);
        // The others go on.
        pool.script.event(Event::Began(RequestId(0)));
    }
    assert_eq!(pool.stuck.len(), busy);
    assert_eq!(pool.script.availability(HUNG), Availability::Hung);
    assert!(pool.abandoned.is_empty(), "their clients have a first byte");
}

#[test]
fn a_long_answer_is_no_hang_while_the_engine_counts_tokens() {
    let mut pool = Pool::new(Push::Pending, true);
    pool.hung = Some(HUNG);
    pool.run(STEP_MS, 4);
    assert!(!pool.stuck.is_empty());
    // The engine computes, and answers none of its requests for a minute.
    let others = pool.hung.take();
    pool.run(60_000, 0);
    assert_eq!(
        pool.script.availability(others.unwrap()),
        Availability::Available
    );
    assert!(pool.abandoned.is_empty());
}

#[test]
fn a_very_long_prompt_is_no_hang_while_it_fills_the_engine_s_memory() {
    let mut pool = Pool::new(Push::Pending, true);
    pool.hung = Some(HUNG);
    (pool.memory, pool.memory_step) = (Some(0.0), 0.001);
    pool.run(60_000, 4);
    assert!(!pool.stuck.is_empty());
    assert!(pool.abandoned.is_empty());
    // The memory stands still: the engine hangs.
    pool.memory_step = 0.0;
    pool.run(11_000, 4);
    assert_eq!(pool.script.availability(HUNG), Availability::Hung);
    assert!(!pool.abandoned.is_empty());
}

#[test]
fn a_pool_that_is_slow_as_a_whole_opens_no_breaker() {
    let mut pool = Pool::new(Push::Outstanding { max: 4 }, false);
    for id in 1_000..1_008 {
        pool.script.arrive(Request {
            tells_start: true,
            ..request(id, id, &[id])
        });
    }
    pool.script.effects();
    for _ in 0..600 {
        pool.script.sleep(STEP_MS);
        pool.script.probe_all(0..REPLICAS);
        assert!(pool.script.effects().is_empty());
    }
    for replica in 0..REPLICAS {
        assert_eq!(pool.script.availability(replica), Availability::Available);
    }
}

#[test]
fn clients_that_give_up_past_the_slo_open_the_breaker_and_impatient_clients_do_not() {
    for (waits_ms, expected) in [
        (6_000, Availability::Failing),
        (4_000, Availability::Available),
    ] {
        let mut pool = Pool::new(Push::Blind, false);
        pool.hung = Some(HUNG);
        while pool.stuck.len() < 5 {
            pool.send(true);
        }
        pool.run(waits_ms, 0);
        for (id, _) in pool.stuck.clone() {
            pool.script.abort(id);
        }
        assert_eq!(pool.script.availability(HUNG), expected, "{waits_ms}");
    }
}

#[test]
fn a_client_that_gives_up_slow_answers_of_a_replica_that_answers_others_opens_nothing() {
    let mut pool = Pool::new(Push::Blind, false);
    for _ in 0..3 * REPLICAS {
        let slow = pool.next;
        pool.hung = Some(HUNG);
        while pool.stuck.is_empty() {
            pool.send(true);
        }
        pool.hung = None;
        pool.run(6_000, 4);
        for (id, _) in std::mem::take(&mut pool.stuck) {
            assert!(id >= slow);
            pool.script.abort(id);
        }
        assert_eq!(pool.script.availability(HUNG), Availability::Available);
    }
}
