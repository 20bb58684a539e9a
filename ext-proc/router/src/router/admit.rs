//! Arrivals: who is placed at once, who waits, and who is refused.

use core::cell::Cell;

use super::Router;
use super::forward::Ticket;
use crate::index::Match;
use crate::policy::{LOOKED_AT_MAX, Placement, View, least_loaded};
use crate::queue::{Place, Waiting};
use crate::slots::{Slot, SlotSet};
use crate::{Reason, RejectReason, Request};

/// Where a request goes, settled.
pub(super) struct Settled {
    pub(super) slot: Slot,
    pub(super) reason: Reason,
    pub(super) found: Option<Match>,
}

/// Whether a request goes.
pub(super) enum Verdict {
    Goes(Settled),
    /// It waits; for one replica in particular, if it is choosy.
    Waits(Option<Slot>),
}

impl Router {
    pub(super) fn arrived(&mut self, request: Request) {
        let id = request.id;
        if self.queue.contains(id) || self.in_flight.contains_key(&id) || self.away.contains(id) {
            return;
        }
        self.counters.arrived += 1;
        let Ticket {
            place,
            arrived,
            is_back,
        } = self.received(&request);
        let pinned = self.pinned(&request);
        if let Some(reason) = self.refusal(&request, pinned.as_deref()) {
            self.reject(request.id, reason);
            return;
        }
        let mut waiting = Waiting {
            place,
            arrived,
            request,
            passed_over: 0,
            pinned,
            wants: None,
            declines_since: None,
            known: Cell::default(),
        };
        if let Some(going) = self.drawn_away(&waiting.request) {
            self.forward(waiting, &going);
            return;
        }
        let verdict = self.settle_arrival(&waiting);
        // Told afterwards, so that an explanation in advance is what happens.
        self.tell(|policy, view| policy.arrived(&waiting.request, view));
        match verdict {
            Verdict::Goes(settled) => {
                self.dispatch(waiting, settled);
                return;
            }
            Verdict::Waits(wants) => {
                waiting.wants = wants;
                waiting.declines_since = wants.map(|_| self.now);
            }
        }
        if self.would_refuse(&waiting, is_back)
            && let Verdict::Goes(settled) = self.settle(&waiting, true)
        {
            // It would rather have waited, but a replica that it did not want is better than none.
            self.dispatch(waiting, settled);
            return;
        }
        if let Some(going) = self.leaves(&waiting, self.queue.len()) {
            self.forward(waiting, &going);
        } else if self.is_too_full_for(&waiting.request) {
            self.counters.guests_refused += 1;
            self.reject(waiting.request.id, RejectReason::RegionFull);
        } else if arrived.after(self.config.queue.wait_max) <= self.now {
            // It came back from a peer too late to wait any more.
            self.reject(waiting.request.id, RejectReason::WaitedTooLong);
        } else if !is_back && self.queue.len() >= self.config.queue.length_max {
            self.reject(waiting.request.id, RejectReason::QueueFull);
        } else {
            self.counters.queued += 1;
            self.enqueue(waiting);
        }
    }

    /// Whether one that cannot go now would be refused.
    fn would_refuse(&self, waiting: &Waiting, is_back: bool) -> bool {
        self.is_too_full_for(&waiting.request)
            || waiting.arrived.after(self.config.queue.wait_max) <= self.now
            || !is_back && self.queue.len() >= self.config.queue.length_max
    }

    /// Why a request cannot be served at all, if so.
    pub(super) fn refusal(
        &self,
        request: &Request,
        pinned: Option<&[Slot]>,
    ) -> Option<RejectReason> {
        if self.shutting_down {
            Some(RejectReason::ShuttingDown)
        } else if self.fleet.staying().is_empty() && !self.may_leave_later(request) {
            Some(RejectReason::NoReplica)
        } else if pinned.is_some_and(<[Slot]>::is_empty) {
            Some(RejectReason::EmptySubset)
        } else {
            None
        }
    }

    /// The replicas that a request is restricted to and that get new requests.
    pub(super) fn pinned(&self, request: &Request) -> Option<Box<[Slot]>> {
        let subset = request.subset.as_deref()?;
        let mut slots: Vec<Slot> = subset
            .iter()
            .filter_map(|id| self.fleet.slot_of(*id))
            .filter(|slot| self.fleet.staying().contains(*slot))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        Some(slots.into())
    }

    /// Where an arriving request goes at once, if anywhere. Those that wait although somebody is free have let
    /// it be; but not beyond the bound.
    fn settle_arrival(&mut self, arriving: &Waiting) -> Verdict {
        loop {
            let settled = match self.settle(arriving, false) {
                Verdict::Goes(settled) => settled,
                waits @ Verdict::Waits(_) => return waits,
            };
            if self.queue.len() == 0 {
                return Verdict::Goes(settled);
            }
            let mut older = self.queue.on_time(settled.slot).map(|(place, _)| place);
            let oldest = older.next();
            let patience = self.policy.patience() as usize;
            let too_many = oldest.filter(|_| older.nth(patience - 1).is_some());
            let Some(overdue) = self.queue.overdue(settled.slot).or(too_many) else {
                drop(older);
                let everybody = Place::LAST;
                let patience = self.policy.patience();
                self.queue
                    .pass_over(everybody, settled.slot, LOOKED_AT_MAX, patience);
                return Verdict::Goes(settled);
            };
            drop(older);
            let forced = self
                .queue
                .get(overdue)
                .map(|waiting| self.settle(waiting, true));
            let Some(Verdict::Goes(forced)) = forced else {
                return Verdict::Waits(None);
            };
            self.go(overdue, forced);
        }
    }

    /// Where the policy sends a request among those that may serve it now. One that `must` go does not get to
    /// wait for a particular replica.
    pub(super) fn settle(&self, waiting: &Waiting, must: bool) -> Verdict {
        let allowed = self.allowed(waiting.pinned.as_deref(), self.fleet.available());
        let candidates = allowed.as_ref().unwrap_or(self.fleet.available());
        if candidates.is_empty() {
            return Verdict::Waits(None);
        }
        let since = waiting.declines_since.unwrap_or(self.now);
        let view = View {
            waited_s: self.now.since(waiting.arrived).as_secs_f64(),
            declined_s: self.now.since(since).as_secs_f64(),
            ..self.view(candidates)
        };
        let wants = match self.policy.place(&waiting.request, &view) {
            Some(Placement::Now {
                slot,
                reason,
                found,
            }) if candidates.contains(slot) => {
                return Verdict::Goes(Settled {
                    slot,
                    reason,
                    found,
                });
            }
            Some(Placement::WaitFor(slot)) => Some(slot),
            Some(Placement::Now { .. }) | None => None,
        };
        match least_loaded(&view, &[]).filter(|_| must) {
            Some(slot) => Verdict::Goes(Settled {
                slot,
                reason: Reason::LeastLoaded,
                found: None,
            }),
            None => Verdict::Waits(wants),
        }
    }

    /// Those of a set that a request is allowed on, where it is restricted.
    pub(super) fn allowed(&self, pinned: Option<&[Slot]>, among: &SlotSet) -> Option<SlotSet> {
        let mut allowed = SlotSet::default();
        for slot in pinned? {
            allowed.set(*slot, among.contains(*slot));
        }
        Some(allowed)
    }

    pub(super) const fn view<'a>(&'a self, candidates: &'a SlotSet) -> View<'a> {
        View {
            fleet: &self.fleet,
            index: &self.index,
            candidates,
            queue: &self.queue,
            answers: &self.answers,
            sessions: &self.sessions,
            service_s: self.service_s,
            ttft_slo_s: self.config.ttft_slo.as_secs_f64(),
            waited_s: 0.0,
            declined_s: 0.0,
            now: self.now,
        }
    }
}
