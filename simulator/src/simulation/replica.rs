//! Replicas: an engine each, its wake-ups, and the probes that ask it.
//!
//! The engine reads a probe when it arrives; the router learns the load when the answer is back. The next probe leaves as the
//! service's prober sends it: an interval later, give or take a tenth, and at least half an interval after the answer.

use core::time::Duration;

use isotherm_engine::model::{AdapterUse, Engine, Totals};
use isotherm_router::{EngineCounters, Event, Load, ReplicaId};

use super::event_queue::{Ns, SimEvent};
use super::{Simulation, nanos};
use crate::setup::{Action, ReplicaSetup};

/// Jitter of the pauses between probes: from 0.9 to 1.1 of the interval.
const JITTER_LEAST: f64 = 0.9;
const JITTER_SPAN: f64 = 0.2;

/// A replica.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) region: usize,
    pub(super) engine: Engine,
    pub(super) setup: ReplicaSetup,
    pub(super) state: State,
    /// Counters of the engine before its last restart.
    pub(super) earlier: Totals,
    /// The wake-up that counts.
    epoch: u32,
    /// When it is due.
    wakes: Option<Duration>,
    /// Prompt tokens on their way here, as the oracle counts them.
    pub(super) expected_arrival_tokens: u64,
}

/// Whether a replica is in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The replica has not joined yet.
    Absent,
    /// The replica takes requests.
    Member,
    /// The replica finishes its requests and takes no other.
    Draining,
    /// The replica has left the pool.
    Removed,
}

/// Probing of a replica by a service.
#[derive(Debug)]
pub(super) struct Probe {
    balancer: u32,
    replica: u32,
    sent: Ns,
    load: Load,
    adapters: AdapterUse,
    counters: Option<EngineCounters>,
}

impl Simulation<'_> {
    pub(super) fn build_replicas(&mut self) {
        let setup = self.setup;
        for (region, of) in setup.regions.iter().enumerate() {
            for replica in &of.replicas {
                self.replicas.push(Replica::new(region, *replica));
            }
        }
        let first = self.replicas.numbers();
        for change in &setup.changes {
            if let Action::Join { region, replica } = change.what {
                let region = region % setup.regions.len().max(1);
                self.replicas.push(Replica::new(region, replica));
            }
        }
        for replica in first {
            self.join(replica);
        }
    }

    /// A replica enters the pool of its region.
    pub(super) fn join(&mut self, number: u32) {
        let replica = &mut self.replicas[number];
        if replica.state != State::Absent {
            return;
        }
        replica.state = State::Member;
        let region = replica.region;
        for balancer in self.balancers_of(region) {
            let name = format!("10.{region}.{}.{}:8000", number / 256, number % 256);
            let event = Event::Added {
                replica: ReplicaId(number),
                name,
                role: isotherm_router::Role::Both,
            };
            self.send_event(balancer, event);
            self.list_adapters(balancer, number);
            let probe = self.probes.push(Probe {
                balancer,
                replica: number,
                sent: self.now,
                load: Load::default(),
                adapters: AdapterUse::default(),
                counters: None,
            });
            self.send_probe(probe, self.now);
        }
    }

    /// Takes the events of an engine, and sees to its next wake-up.
    pub(super) fn drain_engine(&mut self, number: u32) {
        while let Some(event) = self.replicas[number].engine.poll_event() {
            self.handle_engine_event(&event);
        }
        let replica = &mut self.replicas[number];
        let due = replica.engine.poll_timeout();
        if due == replica.wakes {
            return;
        }
        replica.wakes = due;
        replica.epoch = replica.epoch.wrapping_add(1);
        if let Some(at) = due {
            let steps = SimEvent::EngineStep {
                replica: number,
                epoch: replica.epoch,
            };
            self.queue.add(nanos(at).max(self.now), steps);
        }
    }

    pub(super) fn step_engine(&mut self, number: u32, epoch: u32) {
        let replica = &mut self.replicas[number];
        if replica.epoch == epoch {
            replica.wakes = None;
            replica
                .engine
                .handle_timeout(Duration::from_nanos(self.now));
            self.drain_engine(number);
        }
    }

    fn send_probe(&mut self, number: u32, at: Ns) {
        let delay = self.probe_delay(number);
        self.probes[number].sent = at;
        self.queue
            .add(at + delay, SimEvent::ProbeArrival { probe: number });
    }

    pub(super) fn read_probe(&mut self, number: u32) {
        let asked = self.probes[number].replica;
        let replica = &mut self.replicas[asked];
        if replica.state == State::Removed {
            // The service probes its members only.
            return;
        }
        replica
            .engine
            .handle_timeout(Duration::from_nanos(self.now));
        let (load, adapters) = (replica.load(), replica.engine.adapter_use());
        self.probes[number].load = load;
        let telemetry = self.setup.telemetry;
        self.probes[number].counters = telemetry.counters(&replica.engine.stats().totals);
        self.probes[number].adapters = adapters;
        let at = self.now + self.probe_delay(number);
        self.queue.add(at, SimEvent::ProbeReply { probe: number });
        self.drain_engine(asked);
    }

    pub(super) fn report_probe(&mut self, number: u32) {
        let probe = &self.probes[number];
        if self.replicas[probe.replica].state == State::Removed {
            return;
        }
        let (id, probed) = (ReplicaId(probe.replica), super::time(probe.sent));
        let event = if self.setup.telemetry.has_page() {
            Event::Probed {
                replica: id,
                load: probe.load,
                sent: probed,
            }
        } else {
            Event::AnsweredWithoutMetrics {
                replica: id,
                sent: probed,
            }
        };
        let (balancer, replica, sent) = (probe.balancer, probe.replica, probe.sent);
        let adapters = core::mem::take(&mut self.probes[number].adapters);
        self.send_event(balancer, event);
        self.report_adapters(balancer, replica, &adapters, sent);
        if let Some(counters) = self.probes[number].counters.take() {
            let event = Event::CountersReported {
                replica: ReplicaId(replica),
                counters,
                sent: super::time(sent),
            };
            self.send_event(balancer, event);
        }
        let interval = self.setup.probe_interval.max(Duration::from_micros(1));
        let jitter = JITTER_LEAST + JITTER_SPAN * fraction(self.random());
        let next = (sent + nanos(interval.mul_f64(jitter))).max(self.now + nanos(interval / 2));
        self.send_probe(number, next);
    }

    fn probe_delay(&self, number: u32) -> Ns {
        let probe = &self.probes[number];
        self.service_to_replica(self.balancers[probe.balancer].region, probe.replica)
    }
}

impl Replica {
    pub(super) fn new(region: usize, setup: ReplicaSetup) -> Self {
        Self {
            region,
            engine: Engine::new(setup.engine()),
            setup,
            state: State::Absent,
            earlier: Totals::default(),
            epoch: 0,
            wakes: None,
            expected_arrival_tokens: 0,
        }
    }

    /// Counters of the engine over all its restarts, as far as the record of a run has them.
    pub(super) fn totals(&self) -> Totals {
        let (earlier, totals) = (self.earlier, self.engine.stats().totals);
        Totals {
            finished: earlier.finished + totals.finished,
            generation_tokens: earlier.generation_tokens + totals.generation_tokens,
            preemptions: earlier.preemptions + totals.preemptions,
            adapter_loads: earlier.adapter_loads + totals.adapter_loads,
            busy_ns: earlier.busy_ns + totals.busy_ns,
            ..totals
        }
    }

    /// Load on the replica's metrics page, with vLLM's names.
    fn load(&self) -> Load {
        let stats = self.engine.stats();
        let tokens = u64::from(stats.blocks) * u64::from(self.engine.config().block_tokens);
        Load {
            pending: u32::try_from(stats.waiting).unwrap_or(u32::MAX),
            running: u32::try_from(stats.running).ok(),
            kv_usage: Some(stats.kv_usage() as f32),
            kv_capacity_tokens: Some(tokens),
        }
    }
}

/// A random number as a fraction of one.
fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
