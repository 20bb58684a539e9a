//! The world in virtual time: clients, a network, routers, probes and engines, and one agenda of what happens next.
//!
//! The parts are the shipped ones, driven as their drivers do it: the router's events and effects as the service does, the
//! engine's timeouts as its server does. What a real message would carry travels with its real delay: a probe is asked,
//! read by the engine and told later; a response's end reaches the router after it has left the engine.
//!
//! - `agenda`: the order of events
//! - `journey`: one request from its client and back
//! - `balancer`: a router, its members and its timeouts
//! - `replica`: an engine, its wake-ups and its probes
//! - `regions`: what routers tell each other
//! - `change`: replicas that come and go
//! - `sample`: the load over time
//! - `oracle`: who decides when nobody is shipped

mod agenda;
mod balancer;
mod change;
mod journey;
mod oracle;
mod regions;
mod replica;
mod sample;

use core::time::Duration;

use self::agenda::{Agenda, Ns, What};
use self::balancer::Balancer;
use self::journey::Journey;
use self::regions::Link;
use self::replica::{Probe, Replica};
use crate::client::{Clients, Due};
use crate::record::{Outcome, ReplicaTotals, RequestRecord, Sample};
use crate::setup::Setup;
use crate::workload::Workload;

/// Runs a workload on a set-up until every request has its answer, or to its limit ([`Outcome::reached_limit`]). Same arguments, same outcome.
///
/// A session of a region that the set-up does not have belongs to the region of its number modulo theirs; with no region
/// at all nothing is sent.
#[must_use]
pub fn run(setup: &Setup, workload: &Workload) -> Outcome {
    let mut world = World::new(setup, workload);
    world.begin();
    world.go();
    world.finish()
}

struct World<'a> {
    setup: &'a Setup,
    clients: Clients<'a>,
    now: Ns,
    agenda: Agenda,
    balancers: Vec<Balancer>,
    links: Vec<Link>,
    replicas: Vec<Replica>,
    probes: Vec<Probe>,
    /// Requests on their way; places are used again.
    journeys: Vec<Journey>,
    vacant: Vec<u32>,
    /// Steps on the agenda and requests on their way: at zero, with no session to come, all is over.
    open: usize,
    requests: Vec<RequestRecord>,
    samples: Vec<Sample>,
    sample_every: Ns,
    random: u64,
    events: u64,
    reached_limit: bool,
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, workload: &'a Workload) -> Self {
        Self {
            setup,
            clients: Clients::new(workload),
            now: 0,
            agenda: Agenda::default(),
            balancers: Vec::new(),
            links: Vec::new(),
            replicas: Vec::new(),
            probes: Vec::new(),
            journeys: Vec::new(),
            vacant: Vec::new(),
            open: 0,
            requests: Vec::new(),
            samples: Vec::new(),
            sample_every: sample::EVERY_NS,
            random: setup.seed,
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
            self.agenda
                .add(nanos(change.at), What::Changes { change: number });
        }
        self.agenda.add(0, What::Samples);
        if let Some(at) = self.clients.next_start() {
            self.agenda.add(at, What::Starts);
        }
    }

    fn go(&mut self) {
        let limit = nanos(self.setup.limit);
        while self.open > 0 || self.clients.next_start().is_some() {
            let Some((at, what)) = self.agenda.next() else {
                return;
            };
            if at > limit {
                self.now = limit;
                self.reached_limit = true;
                return;
            }
            self.now = at;
            self.events += 1;
            self.happens(what);
        }
    }

    fn happens(&mut self, what: What) {
        match what {
            What::Starts => self.starts(),
            What::Sends { session, step } => self.sends(session, step),
            What::Arrives { journey, at } => self.arrives(journey, at),
            What::Reaches { journey } => self.reaches(journey),
            What::Steps { replica, epoch } => self.steps(replica, epoch),
            What::Ends { journey } => self.ends(journey),
            What::Returns { journey } => self.returns(journey),
            What::Reads { probe } => self.reads(probe),
            What::Tells { probe } => self.tells(probe),
            What::Asks { link } => self.asks(link),
            What::Reports { link } => self.reports(link),
            What::Hears { link } => self.hears(link),
            What::Ticks { balancer } => self.ticks(balancer),
            What::Changes { change } => self.changes(change),
            What::Samples => self.sample(),
        }
    }

    fn starts(&mut self) {
        let due = self.clients.start();
        self.expect(due);
        if let Some(at) = self.clients.next_start() {
            self.agenda.add(at, What::Starts);
        }
    }

    /// Puts steps on the agenda.
    fn expect(&mut self, due: Vec<Due>) {
        for Due { session, step, at } in due {
            self.open += 1;
            self.agenda
                .add(at.max(self.now), What::Sends { session, step });
        }
    }

    fn finish(mut self) -> Outcome {
        let now = Duration::from_nanos(self.now);
        for replica in &mut self.replicas {
            replica.engine.handle_timeout(now);
        }
        let replicas = self.replicas.iter().map(|replica| {
            let totals = replica.engine.stats().totals;
            ReplicaTotals {
                region: replica.region,
                requests: totals.finished,
                prompt_tokens: totals.prefix_query_tokens,
                cached_tokens: totals.prefix_hit_tokens,
                output_tokens: totals.generation_tokens,
                preemptions: totals.preemptions,
                busy: Duration::from_nanos(totals.busy_ns),
            }
        });
        let replicas = replicas.collect();
        let ended = self.requests.iter().filter_map(|request| request.ended);
        let ended = ended.max().unwrap_or_default();
        let cut = self
            .requests
            .iter()
            .filter(|request| request.ended.is_none());
        let cut = cut.count();
        let mut outcome = Outcome {
            replicas,
            sends_until: self.clients.sends_until(),
            ended: if cut > 0 { now } else { ended },
            cut,
            reached_limit: self.reached_limit,
            samples: self.samples,
            requests: self.requests,
            events: self.events,
            ..Outcome::default()
        };
        for balancer in &self.balancers {
            let counters = balancer.router.stats(time(self.now)).counters;
            outcome.predicted_cached_tokens += counters.predicted_cached_tokens;
            outcome.prediction_error_tokens += counters.prediction_error_tokens;
            outcome.predicted_prompt_tokens += counters.measured_prompt_tokens;
        }
        outcome
    }

    /// The next random number (splitmix64).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        crate::prompt::mix(0, self.random)
    }
}

fn nanos(time: Duration) -> Ns {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(at: Ns) -> isotherm_router::Time {
    isotherm_router::Time::from_nanos(at)
}
