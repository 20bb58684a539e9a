//! The replicas of a pool as the planner sees them: their states, the ones that are new, and how full their caches are.

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use isotherm_router::Time;

use crate::removal::Removal;
use crate::{ReplicaState, ReplicasSample};

/// Time in which the pool finds its replicas: a source lists some before others.
const DISCOVERY: Duration = Duration::from_secs(60);
/// The most replicas of a pool that the planner follows.
const REPLICAS_MAX: usize = 10_000;
/// Time over which the utilisation is averaged: the chance of arrivals within it needs no replica, which would come too late.
const MEAN_TIME: Duration = Duration::from_secs(60);
/// Samples of the utilisation that are kept.
const UTILISATIONS_MAX: usize = 120;

/// Replicas of a pool, as seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReplicaWatch {
    pub(crate) sample: ReplicasSample,
    /// Time of the first sample.
    first: Option<Time>,
    /// Time of the last sample.
    last: Time,
    /// Replicas that have served.
    served: BTreeSet<String>,
    /// Full caches, over time.
    full_caches: VecDeque<(Time, f64)>,
}

impl ReplicaWatch {
    /// Takes the state of the replicas. Returns how many of them serve that never served before.
    pub(crate) fn see(
        &mut self,
        now: Time,
        mut sample: ReplicasSample,
        removal: &Removal,
    ) -> usize {
        sample.replicas.truncate(REPLICAS_MAX);
        sample.utilisation = sample
            .utilisation
            .filter(|share| share.is_finite() && *share >= 0.0);
        sample.waiting_s = crate::demand::finite(sample.waiting_s);
        let ready: BTreeSet<&String> = sample
            .replicas
            .iter()
            .filter(|replica| replica.state == ReplicaState::Ready)
            .map(|replica| &replica.name)
            .collect();
        let is_new = |name: &&&String| !self.served.contains(**name) && !removal.is_drained(name);
        let new = match self.first {
            Some(_) => ready.iter().filter(is_new).count(),
            None => 0,
        };
        let served = sample.replicas.iter().map(|replica| &replica.name);
        self.served = served
            .filter(|name| ready.contains(name) || self.served.contains(*name))
            .cloned()
            .collect();
        self.remember(
            now,
            sample.utilisation.map(|share| share * ready.len() as f64),
        );
        self.sample = sample;
        self.first.get_or_insert(now);
        self.last = now;
        new
    }

    fn remember(&mut self, now: Time, full_caches: Option<f64>) {
        self.full_caches
            .retain(|(at, _)| *at < now && now.since(*at) < MEAN_TIME);
        if self.full_caches.len() >= UTILISATIONS_MAX {
            self.full_caches.pop_front();
        }
        self.full_caches.extend(full_caches.map(|full| (now, full)));
    }

    /// Whether the pool has had the time to find its replicas.
    pub(crate) fn is_discovered(&self) -> bool {
        self.first
            .is_some_and(|first| self.last.since(first) >= DISCOVERY)
    }

    pub(crate) fn count(&self, state: ReplicaState) -> u32 {
        let replicas = self.sample.replicas.iter();
        let count = replicas.filter(|replica| replica.state == state).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Utilisation without the chance of arrivals: the mean of the last minute, as if the replicas of now had served all the time.
    pub(crate) fn steady_utilisation(&self) -> Option<f64> {
        self.sample.utilisation?;
        let sum: f64 = self.full_caches.iter().map(|(_, full)| full).sum();
        let ready = f64::from(self.count(ReplicaState::Ready).max(1));
        Some(sum / self.full_caches.len().max(1) as f64 / ready)
    }
}
