//! Arrivals: who is placed at once, who waits, and who is refused.

use core::cell::Cell;

use super::Router;
use super::forward::ArrivalRecord;
use crate::index::PrefixMatch;
use crate::policy::{LOOKED_AT_MAX, Selection, View, least_loaded};
use crate::queue::{QueueSeq, QueuedRequest};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Reason, RejectReason, Request};

/// Where a request goes, settled.
pub(super) struct Dispatch {
    pub(super) slot: ReplicaIndex,
    pub(super) reason: Reason,
    pub(super) matched: Option<PrefixMatch>,
}

/// Whether a request goes.
pub(super) enum Routing {
    Dispatch(Dispatch),
    /// It waits; for one replica in particular, if it is choosy.
    Wait(Option<ReplicaIndex>),
}

impl Router {
    pub(super) fn arrived(&mut self, request: Request) {
        let id = request.id;
        if self.queue.contains(id)
            || self.in_flight.contains_key(&id)
            || self.forwarded.contains(id)
        {
            return;
        }
        self.counters.arrived += 1;
        let ArrivalRecord {
            seq,
            arrived,
            is_back,
        } = self.received(&request);
        let pinned = self.pinned(&request);
        if let Some(reason) = self.refusal(&request, pinned.as_deref()) {
            self.reject(request.id, reason);
            return;
        }
        let mut queued = QueuedRequest {
            seq,
            arrived,
            request,
            overtaken: 0,
            pinned,
            preferred: None,
            delayed_since: None,
            known: Cell::default(),
        };
        if let Some(target) = self.find_warmer_peer(&queued.request) {
            self.forward(queued, &target);
            return;
        }
        let verdict = self.settle_arrival(&queued);
        // ResponseUsage afterwards, so that an explanation in advance is what happens.
        self.tell(|policy, view| policy.on_arrival(&queued.request, view));
        match verdict {
            Routing::Dispatch(settled) => {
                self.dispatch(queued, settled);
                return;
            }
            Routing::Wait(preferred) => {
                queued.preferred = preferred;
                queued.delayed_since = preferred.map(|_| self.now);
            }
        }
        if self.would_refuse(&queued, is_back)
            && let Routing::Dispatch(settled) = self.settle(&queued, true)
        {
            // It would rather have waited, but a replica that it did not want is better than none.
            self.dispatch(queued, settled);
            return;
        }
        if let Some(target) = self.find_peer(&queued, self.queue.len()) {
            self.forward(queued, &target);
        } else if self.is_too_full_for(&queued.request) {
            self.counters.forwarded_in_rejected += 1;
            self.reject(queued.request.id, RejectReason::RegionFull);
        } else if arrived.after(self.config.queue.wait_max) <= self.now {
            // It came back from a peer too late to wait any more.
            self.reject(queued.request.id, RejectReason::WaitedTooLong);
        } else if !is_back && self.queue.len() >= self.config.queue.length_max {
            self.reject(queued.request.id, RejectReason::QueueFull);
        } else {
            self.counters.queued += 1;
            self.enqueue(queued);
        }
    }

    /// Whether one that cannot go now would be refused.
    fn would_refuse(&self, queued: &QueuedRequest, is_back: bool) -> bool {
        self.is_too_full_for(&queued.request)
            || queued.arrived.after(self.config.queue.wait_max) <= self.now
            || !is_back && self.queue.len() >= self.config.queue.length_max
    }

    /// Why a request cannot be served at all, if so.
    pub(super) fn refusal(
        &self,
        request: &Request,
        pinned: Option<&[ReplicaIndex]>,
    ) -> Option<RejectReason> {
        if self.shutting_down {
            Some(RejectReason::ShuttingDown)
        } else if self.replicas.staying().is_empty() && !self.may_be_served_elsewhere(request) {
            Some(RejectReason::NoReplica)
        } else if pinned.is_some_and(<[ReplicaIndex]>::is_empty) {
            Some(RejectReason::EmptySubset)
        } else {
            None
        }
    }

    /// The replicas that a request is restricted to and that get new requests.
    pub(super) fn pinned(&self, request: &Request) -> Option<Box<[ReplicaIndex]>> {
        let subset = request.subset.as_deref()?;
        let mut slots: Vec<ReplicaIndex> = subset
            .iter()
            .filter_map(|id| self.replicas.slot_of(*id))
            .filter(|slot| self.replicas.staying().contains(*slot))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        Some(slots.into())
    }

    /// Where an arriving request goes at once, if anywhere. Those that wait although somebody is free have let
    /// it be; but not beyond the bound.
    fn settle_arrival(&mut self, arriving: &QueuedRequest) -> Routing {
        loop {
            let settled = match self.settle(arriving, false) {
                Routing::Dispatch(settled) => settled,
                waits @ Routing::Wait(_) => return waits,
            };
            if self.queue.len() == 0 {
                return Routing::Dispatch(settled);
            }
            let mut older = self.queue.within_slo(settled.slot).map(|(seq, _)| seq);
            let oldest = older.next();
            let max_overtakes = self.policy.max_overtakes() as usize;
            let too_many = oldest.filter(|_| older.nth(max_overtakes - 1).is_some());
            let Some(at_overtake_limit) = self.queue.at_overtake_limit(settled.slot).or(too_many)
            else {
                drop(older);
                let all = QueueSeq::LAST;
                let max_overtakes = self.policy.max_overtakes();
                self.queue
                    .count_overtakes(all, settled.slot, LOOKED_AT_MAX, max_overtakes);
                return Routing::Dispatch(settled);
            };
            drop(older);
            let forced = self
                .queue
                .get(at_overtake_limit)
                .map(|queued| self.settle(queued, true));
            let Some(Routing::Dispatch(forced)) = forced else {
                return Routing::Wait(None);
            };
            self.go(at_overtake_limit, forced);
        }
    }

    /// Where the policy sends a request among those that may serve it now. One that `must` go does not get to
    /// wait for a particular replica.
    pub(super) fn settle(&self, queued: &QueuedRequest, must: bool) -> Routing {
        let allowed = self.allowed(queued.pinned.as_deref(), self.replicas.available());
        let candidates = allowed.as_ref().unwrap_or(self.replicas.available());
        if candidates.is_empty() {
            return Routing::Wait(None);
        }
        let since = queued.delayed_since.unwrap_or(self.now);
        let view = View {
            waited_s: self.now.since(queued.arrived).as_secs_f64(),
            delayed_s: self.now.since(since).as_secs_f64(),
            ..self.view(candidates)
        };
        let preferred = match self.policy.select_replica(&queued.request, &view) {
            Some(Selection::Dispatch {
                slot,
                reason,
                matched,
            }) if candidates.contains(slot) => {
                return Routing::Dispatch(Dispatch {
                    slot,
                    reason,
                    matched,
                });
            }
            Some(Selection::WaitFor(slot)) => Some(slot),
            Some(Selection::Dispatch { .. }) | None => None,
        };
        match least_loaded(&view, &[]).filter(|_| must) {
            Some(slot) => Routing::Dispatch(Dispatch {
                slot,
                reason: Reason::LeastLoaded,
                matched: None,
            }),
            None => Routing::Wait(preferred),
        }
    }

    /// Those of a set that a request is allowed on, where it is restricted.
    pub(super) fn allowed(
        &self,
        pinned: Option<&[ReplicaIndex]>,
        among: &ReplicaSet,
    ) -> Option<ReplicaSet> {
        let mut allowed = ReplicaSet::default();
        for slot in pinned? {
            allowed.set(*slot, among.contains(*slot));
        }
        Some(allowed)
    }

    pub(super) const fn view<'a>(&'a self, candidates: &'a ReplicaSet) -> View<'a> {
        View {
            replicas: &self.replicas,
            index: &self.index,
            candidates,
            queue: &self.queue,
            answers: &self.answers,
            sessions: &self.sessions,
            service_s: self.service_s,
            ttft_slo_s: self.config.ttft_slo.as_secs_f64(),
            waited_s: 0.0,
            delayed_s: 0.0,
            now: self.now,
        }
    }
}
