//! A run in steps, whose fleet the caller changes: a scaler in closed loop with the shipped routing core.

use core::time::Duration;

use isotherm_router::Event;

use super::replica::{Replica, State};
use super::{Simulation, nanos, time};
use crate::record::{Outcome, RequestRecord};
use crate::setup::{ReplicaSetup, Setup};
use crate::workload::Workload;

/// A run in steps.
pub struct LiveRun<'a>(Simulation<'a>);

/// Load of a region at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionLoad {
    /// Replicas that take requests.
    pub replicas: usize,
    /// Mean share of their KV pools that is in use.
    pub utilisation: f64,
    /// Mean number of requests in one of them.
    pub in_flight: f64,
    /// Requests that wait in the region's router.
    pub waiting: usize,
}

impl<'a> LiveRun<'a> {
    /// A run that has not begun.
    pub fn new(setup: &'a Setup, workload: &'a Workload) -> Self {
        let mut simulation = Simulation::new(setup, workload);
        simulation.begin();
        Self(simulation)
    }

    /// Plays everything up to a time. Returns whether requests are on their way, or still to be sent.
    pub fn advance(&mut self, until: Duration) -> bool {
        let until = nanos(until);
        let run = &mut self.0;
        while run.has_work() && run.queue.next_at().is_some_and(|at| at <= until) {
            let Some((at, what)) = run.queue.next() else {
                break;
            };
            run.now = at;
            run.events += 1;
            run.handle(what);
        }
        run.now = run.now.max(until);
        run.has_work()
    }

    /// A replica joins a region; returns its number.
    pub fn join(&mut self, region: usize, replica: ReplicaSetup) -> usize {
        let region = region % self.0.setup.regions.len().max(1);
        let number = self.0.replicas.push(Replica::new(region, replica));
        self.0.join(number);
        number as usize
    }

    /// A replica finishes what it has, and gets nothing new.
    pub fn drain(&mut self, replica: usize) {
        self.0
            .leave(replica, &[State::Member], State::Draining, Event::Draining);
    }

    /// A replica leaves the pool.
    pub fn remove(&mut self, replica: usize) {
        let from = [State::Member, State::Draining];
        self.0.leave(replica, &from, State::Removed, Event::Removed);
    }

    /// Requests in a replica.
    pub fn outstanding(&self, replica: usize) -> usize {
        let replica = self.0.replicas.iter().nth(replica);
        replica.map_or(0, |replica| {
            let stats = replica.engine.stats();
            stats.running + stats.waiting + stats.arrived
        })
    }

    /// Tokens that all replicas have generated.
    pub fn output_tokens(&self) -> u64 {
        let replicas = self.0.replicas.iter();
        replicas
            .map(|replica| replica.totals().generation_tokens)
            .sum()
    }

    /// The requests that were sent since an earlier number of them.
    pub fn sent_since(&self, count: usize) -> impl Iterator<Item = &RequestRecord> {
        self.0.records.iter().skip(count)
    }

    /// Load of a region.
    pub fn load(&self, region: usize) -> RegionLoad {
        let run = &self.0;
        let members = run.replicas.iter();
        let members: Vec<_> = members
            .filter(|replica| replica.region == region && replica.state == State::Member)
            .map(|replica| replica.engine.stats())
            .collect();
        let count = members.len().max(1) as f64;
        let in_flight = members
            .iter()
            .map(|stats| stats.running + stats.waiting + stats.arrived)
            .sum::<usize>();
        let balancer = run.balancer_of(region);
        let waiting = balancer.map_or(0, |number| {
            let router = &run.balancers[number].router;
            router.stats(time(run.now)).queue_length
        });
        RegionLoad {
            replicas: members.len(),
            utilisation: members
                .iter()
                .map(isotherm_engine::model::Stats::kv_usage)
                .sum::<f64>()
                / count,
            in_flight: in_flight as f64 / count,
            waiting,
        }
    }

    /// Result of the run.
    pub fn finish(self) -> Outcome {
        self.0.finish()
    }
}
