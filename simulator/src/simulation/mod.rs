//! The simulation in virtual time: clients, a network, routers, probes and engines, driven by a single event queue.
//!
//! The simulation drives the shipped router as the service does, and the engine model as its server does. A message travels
//! with its real delay: the engine reads a probe later than the service sends it, and a response's end reaches the router
//! after it has left the engine.
//!
//! - `event_queue`: the order of events
//! - [`LiveRun`]: a run in steps, whose fleet the caller changes
//! - `lifecycle`: a request from its client and back
//! - `balancer`: a router, its members and its timeouts
//! - `replica`: an engine, its wake-ups and its probes
//! - `regions`: what routers tell each other
//! - `change`: replicas that come, go, become slow, or restart
//! - `adapters`: what replicas tell of adapters
//! - `siblings`: several services over one pool, and requests that another router serves
//! - `sample`: the load over time
//! - `table`: entries by number
//! - `oracle`: chooses replicas in place of the shipped router

mod adapters;
mod balancer;
mod change;
mod event_queue;
mod lifecycle;
mod live;
mod oracle;
mod regions;
mod replica;
mod sample;
mod siblings;
mod table;

use core::time::Duration;
use std::collections::BTreeSet;

use isotherm_router::{End, Time};

use self::balancer::Balancer;
use self::event_queue::{EventQueue, Ns, SimEvent};
use self::lifecycle::InFlightRequest;
pub use self::live::{LiveRun, RegionLoad};
use self::regions::Link;
use self::replica::{Probe, Replica};
use self::table::Table;
use crate::client::{Clients, Due};
use crate::record::{Outcome, ReplicaTotals, RequestRecord, Sample};
use crate::setup::Setup;
use crate::workload::Workload;

/// Runs a workload on a set-up until every request has its answer, or to its limits ([`Outcome::reached_limit`]). Same arguments, same outcome.
///
/// A session of a region that the set-up does not have belongs to the region of its number modulo theirs; with no region
/// at all nothing is sent.
pub fn run(setup: &Setup, workload: &Workload) -> Outcome {
    let mut simulation = Simulation::new(setup, workload);
    simulation.begin();
    simulation.run();
    simulation.finish()
}

struct Simulation<'a> {
    setup: &'a Setup,
    clients: Clients<'a>,
    now: Ns,
    queue: EventQueue,
    balancers: Table<Balancer>,
    links: Table<Link>,
    replicas: Table<Replica>,
    probes: Table<Probe>,
    /// Requests on their way; places are used again.
    in_flight: Table<InFlightRequest>,
    vacant: Vec<u32>,
    /// Steps on the event queue and requests on their way: at zero, with no session to come, all is over.
    open: usize,
    records: Table<RequestRecord>,
    samples: Vec<Sample>,
    sample_every: Ns,
    rng_state: u64,
    /// Replica to which the other router sent its last request.
    bypass_turn: usize,
    /// Adapters that requests of the workload name, in order.
    adapters: Vec<u32>,
    events: u64,
    reached_limit: bool,
}

impl<'a> Simulation<'a> {
    fn new(setup: &'a Setup, workload: &'a Workload) -> Self {
        let adapters = workload.sessions.iter().filter_map(|one| one.adapter);
        let adapters: BTreeSet<u32> = adapters.collect();
        Self {
            setup,
            adapters: adapters.into_iter().collect(),
            clients: Clients::new(workload),
            now: 0,
            queue: EventQueue::default(),
            balancers: Table::new(),
            links: Table::new(),
            replicas: Table::new(),
            probes: Table::new(),
            in_flight: Table::new(),
            vacant: Vec::new(),
            open: 0,
            records: Table::new(),
            samples: Vec::new(),
            sample_every: sample::EVERY_NS,
            rng_state: setup.seed,
            bypass_turn: 0,
            events: 0,
            reached_limit: false,
        }
    }

    fn begin(&mut self) {
        if self.setup.regions.is_empty() {
            return;
        }
        self.build_balancers();
        self.build_replicas();
        for (number, change) in (0..).zip(&self.setup.changes) {
            self.queue
                .add(nanos(change.at), SimEvent::FleetChange { change: number });
        }
        self.queue.add(0, SimEvent::LoadSample);
        if let Some(at) = self.clients.next_start() {
            self.queue.add(at, SimEvent::SessionStart);
        }
    }

    fn run(&mut self) {
        let limit = nanos(self.setup.limit);
        while self.has_work() {
            let Some((at, what)) = self.queue.next() else {
                return;
            };
            if at > limit || self.events >= self.setup.events_max {
                self.now = at.min(limit);
                self.reached_limit = true;
                return;
            }
            self.now = at;
            self.events += 1;
            self.handle(what);
        }
    }

    /// Whether requests are on their way or still to be sent.
    fn has_work(&self) -> bool {
        self.open > 0 || self.clients.next_start().is_some()
    }

    fn handle(&mut self, what: SimEvent) {
        match what {
            SimEvent::SessionStart => self.start_session(),
            SimEvent::ClientSend { session, step } => self.send_step(session, step),
            SimEvent::ServiceArrival { flight, service } => self.enter_service(flight, service),
            SimEvent::ReplicaArrival { flight } => self.enter_replica(flight),
            SimEvent::EngineStep { replica, epoch } => self.step_engine(replica, epoch),
            SimEvent::ResponseBegin { flight } => self.begin_response(flight),
            SimEvent::ResponseEnd { flight } => self.end_response(flight),
            SimEvent::ForwardedResponseEnd { flight } => {
                self.end_forwards(flight, End::Answered);
            }
            SimEvent::ProbeArrival { probe } => self.read_probe(probe),
            SimEvent::ProbeReply { probe } => self.report_probe(probe),
            SimEvent::HeartbeatSend { link } => self.send_heartbeat(link),
            SimEvent::HeartbeatArrival { link } => self.answer_heartbeat(link),
            SimEvent::HeartbeatReply { link } => self.receive_heartbeat(link),
            SimEvent::PlacementArrival { balancer } => self.receive_placement(balancer),
            SimEvent::RouterTimeout { balancer } => self.handle_router_timeout(balancer),
            SimEvent::FleetChange { change } => self.change_fleet(change),
            SimEvent::LoadSample => self.sample(),
        }
    }

    fn start_session(&mut self) {
        let due = self.clients.start();
        self.schedule(due);
        if let Some(at) = self.clients.next_start() {
            self.queue.add(at, SimEvent::SessionStart);
        }
    }

    /// Puts steps on the event queue.
    fn schedule(&mut self, due: Vec<Due>) {
        for Due { session, step, at } in due {
            self.open += 1;
            self.queue
                .add(at.max(self.now), SimEvent::ClientSend { session, step });
        }
    }

    fn finish(mut self) -> Outcome {
        let now = Duration::from_nanos(self.now);
        for number in self.replicas.numbers() {
            self.replicas[number].engine.handle_timeout(now);
        }
        let replicas = self.replicas.iter().map(|replica| {
            let totals = replica.totals();
            ReplicaTotals {
                region: replica.region,
                requests: totals.finished,
                output_tokens: totals.generation_tokens,
                preemptions: totals.preemptions,
                adapter_loads: totals.adapter_loads,
                busy: Duration::from_nanos(totals.busy_ns),
            }
        });
        let ends = || self.records.iter().map(|request| request.ended);
        let cut = ends().filter(Option::is_none).count();
        let ended = ends().flatten().max().unwrap_or_default();
        Outcome {
            replicas: replicas.collect(),
            sends_until: self.clients.sends_until(),
            ended: if cut > 0 { now } else { ended },
            cut,
            reached_limit: self.reached_limit,
            samples: self.samples,
            requests: self.records.into_inner(),
            events: self.events,
        }
    }

    /// The next random number (splitmix64).
    fn random(&mut self) -> u64 {
        self.rng_state = self.rng_state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::prompt::mix(0, self.rng_state)
    }
}

fn nanos(time: Duration) -> Ns {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(at: Ns) -> Time {
    Time::from_nanos(at)
}
