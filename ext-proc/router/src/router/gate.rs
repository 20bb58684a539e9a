//! The gate for batch work (SageServe 6.2): held requests start only while the pool has capacity to spare.
//!
//! Each end of a request is a *signal*, and so is each interval without one. A signal lets one held request start while the
//! effective memory utilisation of the pool is below a threshold, and two below a lower one. Gauges lag, so the utilisation counts what was
//! sent since the last probes. No held request starts while a request of the first band waits that an available replica could
//! serve. A held request whose deadline is near is promoted: it joins the first band as if it arrived then.
//!
//! Batch work fills one replica before the next, by name, so that every service of a pool selects the same: batch prompts push the prefixes of
//! conversations out of a replica's cache, and interactive requests leave a replica that is busy.
//!
//! Rejected: credit that adds up over signals. After a quiet minute, batch work would fill the pool at once.

use std::collections::BTreeMap;

use super::Router;
use super::decide::{AvailableTargets, RoutingDecision, allowed};
use crate::constant::constants;
use crate::policy::Dispatch;
use crate::queue::{Band, QueueSeq, QueuedRequest};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{BatchStatus, BatchTier, RejectReason, ReleaseReason, Request, Scope, Tier, Time};

/// Held requests that one event promotes, at most; the rest is due at once.
const PROMOTED_PER_EVENT_MAX: usize = 64;
/// Held requests that are looked at for a replica that suits them, at most.
const HELD_LOOKED_AT_MAX: usize = 64;
constants! {
    /// Share of a replica's memory for KV caches in use from which batch work goes to the next replica. Guards: batch work fills no replica so far
    /// that its engine preempts other requests.
    HOST_FULL: f64 = 0.8;
}

/// State of the gate.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchGate {
    last_signal: Time,
    /// Requests released since the last signal.
    spent: u32,
    released: BTreeMap<ReleaseReason, u64>,
}

impl Router {
    fn batch_rules(&self) -> Option<&BatchTier> {
        self.pool.config.tiers.as_ref().map(|tiers| &tiers.batch)
    }

    /// Whether a request is batch work, in a pool with tiers.
    pub(super) fn is_batch(&self, request: &Request) -> bool {
        self.batch_rules().is_some() && request.tier == Tier::NonInteractive
    }

    /// The band of a request that arrives now.
    pub(super) fn band_of(&self, request: &Request) -> Band {
        let of_batch = |_: &&BatchTier| request.tier == Tier::NonInteractive;
        let Some(rules) = self.batch_rules().filter(of_batch) else {
            return Band::Waiting;
        };
        let is_near = |deadline: Time| deadline.before(rules.promote_left) <= self.pool.now;
        match request.deadline.is_some_and(is_near) {
            true => Band::Waiting,
            false => Band::Held,
        }
    }

    /// Registers a signal: a request has ended.
    pub(super) fn signal(&mut self) {
        self.gate.last_signal = self.pool.now;
        self.gate.spent = 0;
    }

    /// Lets time pass at the gate: an interval without the end of a request is a signal, too.
    pub(super) fn advance_gate(&mut self) {
        let Some(rules) = self.batch_rules() else {
            return;
        };
        if self.gate.last_signal.after(rules.signal_interval) <= self.pool.now {
            self.signal();
        }
    }

    /// The time at which the gate acts without an event.
    pub(super) fn next_at_gate(&self) -> Option<Time> {
        let rules = self.batch_rules()?;
        let (deadline, _) = self.pool.queue.next_deadline()?;
        let signal = self.gate.last_signal.after(rules.signal_interval);
        Some(signal.min(deadline.before(rules.promote_left)))
    }

    /// Requests that the last signal still lets start, and the reason.
    pub(super) fn batch_credit(&self) -> (u32, ReleaseReason) {
        let (most, reason) = self.batch_allowance();
        (most.saturating_sub(self.gate.spent), reason)
    }

    /// Requests that each signal lets start, and the reason.
    fn batch_allowance(&self) -> (u32, ReleaseReason) {
        let Some(rules) = self.batch_rules() else {
            return (0, ReleaseReason::BelowHigh);
        };
        let [high, low] = rules.release_below;
        match self.pool.replicas.memory_use_of_pool() {
            Some(of_pool) if of_pool.share < low => (2, ReleaseReason::BelowLow),
            Some(of_pool) if of_pool.share >= high => (0, ReleaseReason::BelowHigh),
            // Without any measure, one at a time goes to an idle replica.
            Some(_) | None => (1, ReleaseReason::BelowHigh),
        }
    }

    /// Whether the next signal would release no request either: the pool has no capacity to spare.
    pub(super) fn is_gate_shut(&self) -> bool {
        self.batch_allowance().0 == 0 || self.has_waiting_for(self.pool.replicas.available())
    }

    /// Batch requests that peers may send: as many as the next signal would release here, less the held ones.
    pub(super) fn offered_batch_credit(&self) -> u32 {
        if self.is_gate_shut() {
            return 0;
        }
        let held = u32::try_from(self.pool.queue.held_len()).unwrap_or(u32::MAX);
        self.batch_credit().0.saturating_sub(held)
    }

    /// Whether a request of the first band waits that an available replica could serve.
    pub(super) fn has_waiting_for(&self, available: &ReplicaSet) -> bool {
        let queue = &self.pool.queue;
        queue.waiting_len() > 0 && available.iter().any(|replica| queue.has_eligible(replica))
    }

    /// The replica that batch work goes to: the first by name with memory to spare. Empty if that replica is not available while the
    /// utilisation is between the two thresholds; otherwise the first available one takes its place.
    fn batch_host(
        &self,
        pinned: Option<&[ReplicaIndex]>,
        available: &ReplicaSet,
        reason: ReleaseReason,
    ) -> ReplicaSet {
        let replicas = &self.pool.replicas;
        let has_room = |replica: &ReplicaIndex| match replicas.memory_use(*replica) {
            Some(of_one) => of_one.share < HOST_FULL.get(),
            None => replicas.get(*replica).is_some_and(|r| r.requests() == 0),
        };
        let among = match reason {
            ReleaseReason::BelowHigh => replicas.trusted(),
            ReleaseReason::BelowLow | ReleaseReason::Promoted => available,
        };
        let allowed = allowed(pinned, among);
        let hosts = allowed.iter().filter(has_room);
        let first = hosts.min_by_key(|host| replicas.get(*host).map(|replica| &replica.name));
        let mut host = ReplicaSet::default();
        if let Some(first) = first {
            host.set(first, available.contains(first));
        }
        host
    }

    /// Decides on an arriving request that the gate may hold.
    pub(super) fn decide_held(
        &self,
        queued: &QueuedRequest,
        at: AvailableTargets<'_>,
    ) -> RoutingDecision {
        if let Some(reason) = self.rejection(queued, at.replicas) {
            return RoutingDecision::Reject(reason);
        }
        let is_shut = self.is_gate_shut();
        let (credit, reason) = self.batch_credit();
        let is_open = credit > 0 && !self.has_waiting_for(at.replicas);
        let is_next = self.pool.queue.held_len() == 0 && !self.service.is_pending();
        if is_next && is_open {
            let host = self.batch_host(queued.pinned.as_deref(), at.replicas, reason);
            if let decided @ RoutingDecision::Dispatch(_) = self.route(queued, true, &host) {
                return decided;
            }
        }
        if is_shut {
            let with_credit = self.pool.peers.with_batch_credit(at.peers);
            if let Some(target) = self.select_peer(&queued.request, &with_credit) {
                return RoutingDecision::Forward(target);
            }
        }
        let rejection = self.hold_rejection(queued);
        rejection.map_or(RoutingDecision::Wait(None), RoutingDecision::Reject)
    }

    /// The reason for which the gate may not hold an arriving request.
    fn hold_rejection(&self, queued: &QueuedRequest) -> Option<RejectReason> {
        let most = self.batch_rules().map_or(0, |rules| rules.length_max);
        if queued.request.scope == Scope::Forwarded {
            // Its own region can hold it.
            Some(RejectReason::RegionFull)
        } else if !queued.is_requeued() && self.pool.queue.held_len() >= most {
            Some(RejectReason::QueueFull)
        } else {
            self.wait_rejection(queued)
        }
    }

    /// Lets held requests start, as many as the last signal allows. Returns whether any did.
    pub(super) fn release_batch(&mut self) -> bool {
        let mut has_released = false;
        while self.pool.queue.held_len() > 0 && !self.pool.replicas.available().is_empty() {
            let (credit, reason) = self.batch_credit();
            let available = self.pool.replicas.available();
            if credit == 0 || self.has_waiting_for(available) {
                break;
            }
            let Some((seq, dispatch)) = self.next_released(available, reason) else {
                break;
            };
            if let Some(queued) = self.dequeue(seq) {
                self.count_release(reason);
                self.dispatch(queued, dispatch);
            }
            has_released = true;
        }
        has_released
    }

    /// The held request that starts next, and its replica.
    fn next_released(
        &self,
        available: &ReplicaSet,
        reason: ReleaseReason,
    ) -> Option<(QueueSeq, Dispatch)> {
        let host_of_all = self.batch_host(None, available, reason);
        let mut in_order = self.pool.queue.held_in_order().take(HELD_LOOKED_AT_MAX);
        in_order.find_map(|(seq, queued)| {
            let pinned = queued.pinned.as_deref();
            let own = pinned.map(|_| self.batch_host(pinned, available, reason));
            match self.route(queued, true, own.as_ref().unwrap_or(&host_of_all)) {
                RoutingDecision::Dispatch(dispatch) => Some((seq, dispatch)),
                _ => None,
            }
        })
    }

    /// Counts a batch request that the gate lets go.
    pub(super) fn count_release(&mut self, reason: ReleaseReason) {
        *self.gate.released.entry(reason).or_default() += 1;
        match reason {
            ReleaseReason::BelowHigh | ReleaseReason::BelowLow => self.gate.spent += 1,
            ReleaseReason::Promoted => {}
        }
    }

    /// Promotes the held requests whose deadlines are near, behind the requests that wait already. Returns whether there were some.
    pub(super) fn promote_due(&mut self) -> bool {
        for promoted in 0..PROMOTED_PER_EVENT_MAX {
            let left = self.batch_rules().map(|rules| rules.promote_left);
            let Some((left, (deadline, seq))) = left.zip(self.pool.queue.next_deadline()) else {
                return promoted > 0;
            };
            if deadline.before(left) > self.pool.now {
                return promoted > 0;
            }
            self.promote(seq);
        }
        true
    }

    /// Lets a held request join the first band, as if it arrived now.
    pub(super) fn promote(&mut self, seq: QueueSeq) {
        let Some(mut queued) = self.dequeue(seq) else {
            return;
        };
        queued.band = Band::Waiting;
        queued.entered = self.pool.now;
        queued.is_promoted = true;
        queued.seq = self.pool.queue.next_seq();
        self.count_release(ReleaseReason::Promoted);
        self.admit(queued);
    }

    /// Lets all held requests join the first band, since the pool has no tiers any more.
    pub(super) fn open_gate(&mut self) {
        while let Some((_, seq)) = self.pool.queue.next_deadline() {
            self.promote(seq);
        }
    }

    /// Figures of the batch gate; all zero in a pool without tiers.
    #[must_use]
    pub fn batch_status(&self, now: Time) -> BatchStatus {
        if self.batch_rules().is_none() {
            return BatchStatus::default();
        }
        let queue = &self.pool.queue;
        let (held, oldest) = queue.count(|queued| queued.band == Band::Held);
        let of_pool = self.pool.replicas.memory_use_of_pool();
        BatchStatus {
            utilisation: of_pool.map(|of_pool| of_pool.share),
            credit: self.batch_credit().0,
            held,
            oldest_wait: oldest.map_or_else(Default::default, |oldest| now.since(oldest.entered)),
            released: self.gate.released.clone(),
        }
    }
}
