//! Engines that restart: the new process has an empty cache, and the router hears of it late or not at all.
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::support::script::Script;
use crate::support::{BLOCK_BYTES, prompt, request};
use isotherm_policies::PolicyName;
use isotherm_router::{
    End, EngineCounters, Event, ReplicaId, RequestId, RouterConfig, ServedBy, Time,
};

/// Conversations that go on in turn.
const CONVERSATIONS: u64 = 300;
/// Requests in flight at a time.
const CONCURRENCY: usize = 8;
/// Wrong predictions that a silent restart may cause.
const MISPREDICTED_MAX: usize = 20;

/// A request on its way through its engine.
struct RunningRequest {
    id: u64,
    replica: u32,
    blocks: Vec<u64>,
    predicted: u32,
    cached: u32,
}

/// Replicas whose caches keep everything, and conversations that grow by two blocks a turn.
struct World {
    script: Script,
    caches: BTreeMap<u32, BTreeSet<u64>>,
    turns: BTreeMap<u64, u64>,
    running: VecDeque<RunningRequest>,
    next: u64,
    mispredicted: usize,
    /// Whether answers tell of cached tokens.
    has_usage: bool,
}

impl World {
    fn new(has_usage: bool) -> Self {
        let config = RouterConfig {
            policy: PolicyName::PrefixTree.into(),
            push: isotherm_router::Push::Blind,
            ..RouterConfig::default()
        };
        Self {
            script: Script::new(config, 4),
            caches: BTreeMap::new(),
            turns: BTreeMap::new(),
            running: VecDeque::new(),
            next: 0,
            mispredicted: 0,
            has_usage,
        }
    }

    /// The next request of a conversation arrives, and the oldest one in flight ends.
    fn step(&mut self, conversation: u64) {
        self.script.sleep(20);
        let turn = self.turns.entry(conversation).or_default();
        *turn += 1;
        let blocks: Vec<u64> = (0..2 * *turn + 4)
            .map(|block| 1_000 * conversation + block)
            .collect();
        let id = self.next;
        self.next += 1;
        self.script.arrive(request(id, conversation, &blocks));
        for (id, decision) in self.script.dispatches() {
            let cache = self.caches.entry(decision.replica.0).or_default();
            let is_cached = |block: &&u64| cache.contains(*block);
            let cached = blocks.iter().take_while(is_cached).count();
            let cached = u32::try_from(cached).unwrap() * BLOCK_BYTES;
            cache.extend(&blocks);
            self.mispredicted += usize::from(cached < decision.matched_bytes);
            self.running.push_back(RunningRequest {
                id,
                replica: decision.replica.0,
                blocks: blocks.clone(),
                predicted: decision.matched_bytes,
                cached,
            });
        }
        if self.running.len() > CONCURRENCY {
            self.end_oldest();
        }
    }

    fn end_oldest(&mut self) {
        let Some(ended) = self.running.pop_front() else {
            return;
        };
        let total = prompt(&ended.blocks).total_bytes();
        self.script.event(Event::Finished {
            id: RequestId(ended.id),
            served_by: ServedBy::Unreported,
            end: End::Answered,
            ttft_us: None,
            prompt_tokens: self.has_usage.then_some(total / 4),
            cached_tokens: self.has_usage.then_some(ended.cached / 4),
            completion_tokens: None,
        });
    }

    /// All conversations go on a few times.
    fn run(&mut self, rounds: u64) {
        for step in 0..rounds * CONVERSATIONS {
            self.step(step * 7 % CONVERSATIONS);
        }
    }

    /// The process of a replica ends with its requests, and another one takes its place.
    fn restart(&mut self, replica: u32) {
        self.caches.remove(&replica);
        let (lost, kept) = core::mem::take(&mut self.running)
            .into_iter()
            .partition(|running: &RunningRequest| running.replica == replica);
        self.running = kept;
        for lost in Vec::from(lost) {
            let _ = (lost.predicted, lost.replica);
            let id = lost.id;
            self.script
                .finish_as(id, End::Failed, ServedBy::Unreported, None);
        }
        self.mispredicted = 0;
    }

    fn report(&mut self, replica: u32, started_ms: u64, prompt_tokens: f64) {
        self.report_counters(replica, Some(started_ms), prompt_tokens);
    }

    fn report_counters(&mut self, replica: u32, started_ms: Option<u64>, prompt_tokens: f64) {
        let sent: Time = self.script.now;
        self.script.event(Event::CountersReported {
            replica: ReplicaId(replica),
            counters: EngineCounters {
                started_ms,
                prompt_tokens: Some(prompt_tokens),
                ..EngineCounters::default()
            },
            sent,
        });
    }

    fn prefix_bytes(&self, replica: u32) -> u64 {
        let mut all = self.script.router.replicas(self.script.now);
        let found = all.find(|status| status.id == ReplicaId(replica));
        found.unwrap().prefix_bytes
    }
}

#[test]
fn a_replica_that_restarts_silently_causes_at_most_twenty_mispredicted_requests() {
    let mut world = World::new(true);
    world.run(3);
    world.restart(1);
    world.run(3);
    assert!(world.mispredicted > 0, "the scenario has no effect");
    assert!(
        world.mispredicted <= MISPREDICTED_MAX,
        "{}",
        world.mispredicted
    );
    assert_eq!(world.script.stats().counters.engine_restarts, 0);
}

#[test]
fn a_later_start_of_the_process_empties_the_replicas_part_of_the_index() {
    let mut world = World::new(false);
    world.report(1, 1_000, 0.0);
    world.run(3);
    assert!(world.prefix_bytes(1) > 0);
    world.restart(1);
    world.report(1, 90_000, 7_000_000.0);
    assert_eq!(world.prefix_bytes(1), 0);
    assert!(world.prefix_bytes(0) > 0, "the others keep theirs");
    world.run(3);
    assert_eq!(world.mispredicted, 0);
    assert_eq!(world.script.stats().counters.engine_restarts, 1);
}

#[test]
fn a_cache_that_an_operator_calls_empty_empties_the_replicas_part_of_the_index() {
    let mut world = World::new(false);
    world.run(3);
    world.caches.remove(&1);
    world.script.event(Event::CacheEmptied(ReplicaId(1)));
    world.mispredicted = 0;
    assert_eq!(world.prefix_bytes(1), 0);
    assert!(world.prefix_bytes(0) > 0, "the others keep theirs");
    world.run(3);
    assert_eq!(world.mispredicted, 0);
    assert!(world.prefix_bytes(1) > 0, "it fills again");
    assert_eq!(world.script.stats().counters.engine_restarts, 0);
    world.script.event(Event::CacheEmptied(ReplicaId(9)));
}

#[test]
fn counters_that_run_back_after_failed_probes_show_a_restart() {
    let mut world = World::new(false);
    world.report(2, 1_000, 500_000.0);
    world.run(2);
    world.restart(2);
    world.script.probe_fails(2);
    world.script.probe(2, 0);
    // The clock of the new process's machine is behind.
    world.report(2, 1_000, 900.0);
    assert_eq!(world.prefix_bytes(2), 0);
    world.run(2);
    assert_eq!(world.mispredicted, 0);
}

/// Prompt tokens of two processes behind one address, which answer the probes of replica 1 in turn.
fn alternate(world: &mut World, probes: u32) {
    for probe in 0..probes {
        world.script.sleep(1_000);
        let done = if probe % 2 == 0 { 900_000.0 } else { 40_000.0 };
        world.report_counters(1, None, done + f64::from(probe));
    }
}

#[test]
fn several_processes_behind_one_address_do_not_restart_over_and_over() {
    let mut world = World::new(false);
    alternate(&mut world, 6);
    let restarts = world.script.stats().counters.engine_restarts;
    assert!(restarts <= 2, "{restarts} before the second jump");
    world.run(2);
    let held = world.prefix_bytes(1);
    assert!(held > 0);
    alternate(&mut world, 60);
    assert_eq!(world.prefix_bytes(1), held, "nothing is forgotten");
    assert_eq!(world.script.stats().counters.engine_restarts, restarts);
    let several = world.script.router.replicas(world.script.now);
    let several: Vec<bool> = several.map(|status| status.has_several_processes).collect();
    assert_eq!(several, [false, true, false, false]);
}

#[test]
fn a_restarted_engine_has_nothing_queued() {
    let mut script = Script::new(RouterConfig::default(), 1);
    script.arrive(request(1, 1, &(0..400).collect::<Vec<_>>()));
    let blocks = [9_000, 9_001, 9_002];
    let ttft = |script: &Script| {
        let explained = script.router.explain(script.now, &request(2, 2, &blocks));
        -explained.candidates[0].score
    };
    let behind = ttft(&script);
    script.event(Event::CountersReported {
        replica: ReplicaId(0),
        counters: EngineCounters {
            started_ms: Some(1_000),
            ..EngineCounters::default()
        },
        sent: script.now,
    });
    script.event(Event::CountersReported {
        replica: ReplicaId(0),
        counters: EngineCounters {
            started_ms: Some(60_000),
            ..EngineCounters::default()
        },
        sent: script.now,
    });
    assert!(ttft(&script) < 0.5 * behind, "{} {behind}", ttft(&script));
}
