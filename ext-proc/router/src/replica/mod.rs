//! One replica: its load as last told, its health, what was sent to it.

mod arrival_rate;
mod backlog;
mod breaker;
mod headroom;
mod least_squares;
mod pushes;
mod replicas;
mod stall_detector;

use arrival_rate::ArrivalRate;
use backlog::{Backlog, LatencyFit, LatencyModel};
pub(crate) use backlog::{Measured, Output};
pub(crate) use breaker::{Breaker, BreakerPermit, Evidence};
use headroom::Headroom;
pub(crate) use pushes::Pushes;
pub(crate) use replicas::{LoadKey, Rank, Replicas};
use stall_detector::StallDetector;

use crate::{Availability, Load, Push, ReplicaId, ReplicaStatus, Time};

/// One replica.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    /// Its identity.
    pub(crate) id: ReplicaId,
    /// Its stable name.
    pub(crate) name: String,
    /// Requests sent to it and not finished.
    pub(crate) outstanding: u32,
    /// When it was sent its last request, in decisions: who has waited longest wins ties.
    pub(crate) turn: u64,
    /// Whether it gets nothing new.
    pub(crate) draining: bool,
    /// Predicted hits in a row that did not happen.
    false_hits: u32,
    headroom: Headroom,
    breaker: Breaker,
    backlog: Backlog,
    /// What it was sent over the last while.
    arrivals: ArrivalRate,
    stall: StallDetector,
    /// The last good probe, and when it was sent.
    probe: Option<(Load, Time)>,
    /// Whether a probe failed since.
    failed: bool,
}

impl Replica {
    pub(crate) fn new(id: ReplicaId, name: String) -> Self {
        Self {
            id,
            name,
            outstanding: 0,
            turn: 0,
            draining: false,
            false_hits: 0,
            headroom: Headroom::default(),
            breaker: Breaker::default(),
            backlog: Backlog::default(),
            arrivals: ArrivalRate::default(),
            stall: StallDetector::default(),
            probe: None,
            failed: false,
        }
    }

    /// What its last good probe said.
    pub(crate) const fn load(&self) -> Option<&Load> {
        match &self.probe {
            Some((load, _)) => Some(load),
            None => None,
        }
    }

    /// Whether it takes another request, or why not. `rules` are the pool's.
    pub(crate) fn availability(&self, rules: &Rules, now: Time, throttled: bool) -> Availability {
        if self.draining {
            return Availability::Draining;
        }
        if let Some(ill) = self.ill(rules, now) {
            return if rules.is_probe_panic {
                Availability::Available
            } else {
                ill
            };
        }
        if !rules.is_breaker_panic && !self.breaker.admits(now) {
            return Availability::Failing;
        }
        match rules.push {
            Push::Blind => Availability::Available,
            Push::Outstanding { max } if self.outstanding < max.max(1) => Availability::Available,
            Push::Outstanding { .. } => Availability::Full,
            Push::Pending => self.by_pending(throttled),
        }
    }

    /// Why it is not healthy, if it is not: its last probe failed or is too old. Without any probe it is
    /// presumed healthy, since nothing may probe it; `pending` wants one all the same.
    pub(crate) fn ill(&self, rules: &Rules, now: Time) -> Option<Availability> {
        if self.failed {
            return Some(Availability::ProbeFailed);
        }
        self.expires(rules)
            .is_some_and(|expires| now >= expires)
            .then_some(Availability::Stale)
    }

    /// When its last good probe becomes too old.
    fn expires(&self, rules: &Rules) -> Option<Time> {
        self.probe
            .map(|(_, sent)| sent.after(rules.probe_stale_after))
    }

    /// When the passing of time alone changes whether it is available: its last good probe becomes too old, or it may be
    /// tried again.
    fn next_change(&self, rules: &Rules, now: Time) -> Option<Time> {
        let changes = [self.expires(rules), self.breaker.until()];
        changes
            .into_iter()
            .flatten()
            .filter(|time| *time > now)
            .min()
    }

    fn by_pending(&self, throttled: bool) -> Availability {
        match self.load() {
            None => Availability::NeverProbed,
            Some(load) if load.pending > 0 => Availability::Pending,
            Some(_) if self.headroom.admits(self.outstanding, throttled) => Availability::Available,
            Some(_) => Availability::NoHeadroom,
        }
    }

    /// Whether it has nothing to do, as far as is known.
    fn is_idle(&self) -> bool {
        self.outstanding == 0 && !self.headroom.has_siblings_pushes()
    }

    /// Whether it has no room until a request of its own ends.
    pub(crate) fn is_full(&self) -> bool {
        let reached = self
            .headroom
            .capacity()
            .is_some_and(|capacity| self.outstanding >= capacity);
        let is_out_of_memory = self
            .load()
            .and_then(|load| load.kv_usage)
            .is_some_and(|usage| usage >= headroom::KV_FULL_MIN);
        reached || is_out_of_memory
    }

    /// How many more it may be sent before its next probe; `None` where the mode does not bound it.
    fn headroom(&self, rules: &Rules) -> Option<u32> {
        match rules.push {
            Push::Pending => Some(self.headroom.left(self.outstanding)),
            Push::Outstanding { max } => Some(max.max(1).saturating_sub(self.outstanding)),
            Push::Blind => None,
        }
    }

    /// How many requests it can start now, when it is available. One that is on trial gets one.
    fn free_capacity(&self, rules: &Rules) -> u32 {
        let most = if rules.is_breaker_panic || self.breaker.is_closed() {
            u32::MAX
        } else {
            1
        };
        self.headroom(rules).unwrap_or_default().min(most)
    }

    /// For people. `throttled` while another replica idles.
    pub(crate) fn status(&self, rules: &Rules, now: Time, throttled: bool) -> ReplicaStatus {
        ReplicaStatus {
            id: self.id,
            name: self.name.clone(),
            outstanding: self.outstanding,
            load: self.load().copied(),
            probed: self.probe.map(|(_, sent)| sent),
            headroom: self.headroom(rules),
            capacity: self.headroom.capacity(),
            prefix_bytes: 0,
            availability: self.availability(rules, now, throttled),
            draining: self.draining,
        }
    }
}

/// When replicas of a pool are available.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rules {
    pub(crate) push: Push,
    pub(crate) probe_stale_after: core::time::Duration,
    /// Blind pushing only, and no probe succeeds: then anybody is better than nobody.
    pub(crate) is_probe_panic: bool,
    /// Every replica with a good probe fails its requests: then none is left out for that.
    pub(crate) is_breaker_panic: bool,
}
