//! From arrival to dispatch: who is placed at once, who waits, and who is served next.

use core::time::Duration;
use smallvec::SmallVec;

use super::forward::Ticket;
use super::{Flight, Router};
use crate::index::Match;
use crate::policy::{Declined, Placement, Taken, View, last_edge, least_loaded, uncached_tokens};
use crate::queue::{Place, Waiting};
use crate::slots::{Slot, SlotSet};
use crate::{Decision, Effect, Reason, RejectReason, Request, Target, Time};

/// How many waiting requests are looked at for one freed replica. When more than these decline it, the oldest
/// has to take it.
pub(super) const LOOKED_AT_MAX: usize = 64;

/// How often those are asked again that wait for one replica although others are free.
const REVIEW_INTERVAL: Duration = Duration::from_millis(50);

/// How many replicas they are offered each time.
const REVIEWED_MAX: usize = 16;

/// Where a request goes, settled.
struct Settled {
    slot: Slot,
    reason: Reason,
    found: Option<Match>,
}

/// Whether a request goes.
enum Verdict {
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

    /// Serves whoever waits for what this event has freed, oldest first: here, and then elsewhere.
    pub(super) fn pump(&mut self) {
        self.serve_freed();
        self.send_away();
    }

    fn serve_freed(&mut self) {
        if self.queue.len() == 0 {
            self.fleet.forget_freed();
            self.offer_declined = false;
            return;
        }
        let mut freed = self.fleet.take_freed();
        if self.reviews_wishes() {
            self.offer_declined = false;
            freed = self.under_review();
        }
        let mut declined: SmallVec<[Place; 8]> = SmallVec::new();
        loop {
            if self.fleet.take_calm_ended() {
                // The last idle one has been given something to do.
                freed = self.fleet.available().iter().collect();
            }
            freed.retain(|slot| self.fleet.available().contains(*slot));
            let offer = freed
                .iter()
                .filter_map(|slot| Some((self.first_eligible(*slot, &declined)?, *slot)))
                .min();
            let Some((_, slot)) = offer else {
                return;
            };
            match self.serve(slot, &mut declined) {
                Served::Somebody | Served::Declined => {}
                Served::Nobody => freed.retain(|other| *other != slot),
            }
        }
    }

    /// Whether it is time to ask those again that wait for one replica although others are free.
    fn reviews_wishes(&mut self) -> bool {
        let due = self.next_review().is_some_and(|next| next <= self.now);
        if due {
            self.reviewed = self.now;
        }
        due
    }

    /// Some of the available replicas, in turn from one review to the next.
    fn under_review(&mut self) -> Vec<Slot> {
        let available = self.fleet.available();
        let mut offered = Vec::new();
        let mut from = self.review_from;
        for _ in 0..available.len().min(REVIEWED_MAX) {
            let Some(slot) = available.next_round(from) else {
                break;
            };
            offered.push(slot);
            from = Slot(slot.0.wrapping_add(1));
        }
        self.review_from = from;
        offered
    }

    /// When that is.
    pub(super) fn next_review(&self) -> Option<Time> {
        let is_choosy = self.queue.has_wishes() || self.offer_declined;
        let is_due = is_choosy && !self.fleet.available().is_empty();
        is_due.then(|| self.reviewed.after(REVIEW_INTERVAL))
    }

    /// Asks who takes a freed replica, and where that one wants to go.
    fn serve(&mut self, slot: Slot, declined: &mut SmallVec<[Place; 8]>) -> Served {
        let overdue = if declined.len() >= LOOKED_AT_MAX {
            self.first_eligible(slot, &[])
        } else {
            self.queue.overdue(slot)
        };
        let mut decliners = Declined::new();
        let taken = overdue.map(Taken::Turn).or_else(|| {
            let candidates = self.fleet.available();
            let view = self.view(candidates);
            let mut waiting = self
                .queue
                .eligible(slot)
                .filter(|(place, _)| !declined.contains(place))
                .take(LOOKED_AT_MAX);
            self.policy.take(slot, &mut waiting, &view, &mut decliners)
        });
        for (place, home) in &decliners {
            self.queue.want(*place, Some(*home), self.now);
        }
        let place = match taken {
            None if decliners.len() >= LOOKED_AT_MAX => {
                // So many decline it that it would idle behind a long line: the oldest has to take it.
                let oldest = decliners.first().map(|(place, _)| *place);
                let forced = oldest
                    .and_then(|place| Some((place, self.settle(self.queue.get(place)?, true))));
                let Some((place, Verdict::Goes(settled))) = forced else {
                    return Served::Nobody;
                };
                self.go(place, settled);
                return Served::Somebody;
            }
            None => {
                self.offer_declined = true;
                return Served::Nobody;
            }
            Some(Taken::Here {
                place,
                reason,
                found,
            }) => {
                if !self.queue.may_go(place, slot) {
                    declined.push(place);
                    return Served::Declined;
                }
                let settled = Settled {
                    slot,
                    reason,
                    found,
                };
                self.go(place, settled);
                return Served::Somebody;
            }
            Some(Taken::Turn(place)) => place,
        };
        let Some(waiting) = self.queue.get(place) else {
            return Served::Nobody;
        };
        match self.settle(waiting, overdue.is_some()) {
            Verdict::Goes(settled) => {
                self.go(place, settled);
                Served::Somebody
            }
            Verdict::Waits(wants) => {
                self.queue.want(place, wants, self.now);
                declined.push(place);
                Served::Declined
            }
        }
    }

    /// A waiting request goes; older ones that could have gone there are passed over.
    fn go(&mut self, place: Place, settled: Settled) {
        let patience = self.policy.patience();
        self.queue
            .pass_over(place, settled.slot, LOOKED_AT_MAX, patience);
        if let Some(waiting) = self.dequeue(place) {
            self.dispatch(waiting, settled);
        }
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

    fn first_eligible(&self, slot: Slot, declined: &[Place]) -> Option<Place> {
        self.queue
            .eligible(slot)
            .map(|(place, _)| place)
            .find(|place| !declined.contains(place))
    }

    /// Where the policy sends a request among those that may serve it now. One that `must` go does not get to
    /// wait for a particular replica.
    fn settle(&self, waiting: &Waiting, must: bool) -> Verdict {
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

    fn dispatch(&mut self, waiting: Waiting, settled: Settled) {
        let Waiting {
            request,
            arrived,
            pinned,
            ..
        } = waiting;
        let slot = settled.slot;
        let Some(replica) = self.fleet.id_of(slot) else {
            return;
        };
        let fallbacks = self.fallbacks(&request, pinned.as_deref(), slot, settled.found.as_ref());
        let edges = request.fingerprint.edges();
        let found = settled
            .found
            .unwrap_or_else(|| self.index.deepest_of(edges, slot));
        let unmatched = uncached_tokens(&request, found.depth);
        let (expected, remembered) = last_edge(&request, found.depth).map_or((0.0, 0.0), |edge| {
            let answers = &self.answers;
            (
                answers.expected(edge, replica, unmatched),
                answers.remembered(edge, replica, unmatched),
            )
        });
        let uncached = unmatched - expected;
        let ahead = self.fleet.pending_prefill_tokens(slot, self.now);
        let Some(sent) = self.fleet.dispatched(slot, uncached, self.now) else {
            return;
        };
        let followed = request
            .session
            .and_then(|session| self.sessions.went(session, replica));
        let outstanding = self.fleet.get(slot).map_or(1, |r| r.outstanding);
        let recorded = self.index.record(edges, slot, &found);
        self.share(Target::Replica(replica), edges, found.depth);
        self.policy.placed(slot);
        let matched_bytes = request.fingerprint.bytes_at(found.depth);
        let share = request.fingerprint.share_at(found.depth);
        *self.counters.decisions.entry(settled.reason).or_default() += 1;
        self.effects.push_back(Effect::Dispatch {
            id: request.id,
            decision: Decision {
                replica,
                fallbacks,
                reason: settled.reason,
                matched_bytes,
                matched_tokens: share_of(request.prompt_tokens, share),
                queued_for: self.now.since(arrived),
            },
        });
        self.in_flight.insert(
            request.id,
            Flight {
                replica,
                sent,
                at: self.now,
                fingerprint: request.fingerprint,
                matched_bytes,
                recorded,
                ahead_tokens: ahead,
                outstanding,
                behind_tokens: remembered,
                uncached_tokens: uncached,
                followed,
            },
        );
    }

    /// Whom to try when the chosen one fails: others that are available, best first, then trusted ones that are
    /// busy, because a replica that queues is better than an error. None that fails itself, and no trials.
    fn fallbacks(
        &self,
        request: &Request,
        pinned: Option<&[Slot]>,
        chosen: Slot,
        found: Option<&Match>,
    ) -> SmallVec<[crate::ReplicaId; 3]> {
        let wanted = self.config.fallbacks_max.saturating_add(1);
        let allowed = self.allowed(pinned, self.fleet.available());
        let candidates = allowed.as_ref().unwrap_or(self.fleet.available());
        let view = self.view(candidates);
        let mut named: SmallVec<[Slot; 4]> = SmallVec::new();
        named.push(chosen);
        while named.len() < wanted.min(candidates.len()) {
            let Some(next) = self.policy.next_best(request, found, &view, &named) else {
                break;
            };
            named.push(next);
        }
        let trusted = self.fleet.trusted();
        named.retain(|slot| *slot == chosen || trusted.contains(*slot));
        if named.len() < wanted {
            let allowed = self.allowed(pinned, trusted);
            let trusted = allowed.as_ref().unwrap_or(trusted);
            let mut from = chosen;
            for _ in 0..trusted.len().min(2 * wanted) {
                from = Slot(from.0.wrapping_add(1));
                let Some(next) = trusted.next_round(from) else {
                    break;
                };
                if !named.contains(&next) {
                    named.push(next);
                }
                if named.len() >= wanted {
                    break;
                }
                from = next;
            }
        }
        named
            .iter()
            .skip(1)
            .filter_map(|slot| self.fleet.id_of(*slot))
            .collect()
    }
}

/// What came of offering a replica to those that wait.
enum Served {
    /// One of them went somewhere.
    Somebody,
    /// The one that was asked wants to wait for another replica.
    Declined,
    /// Nobody is to take it.
    Nobody,
}

/// A share of a number of tokens.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a u32 that is between 0 and 1 is a u32"
)]
pub(super) fn share_of(tokens: u32, share: f64) -> u32 {
    (f64::from(tokens) * share.clamp(0.0, 1.0)) as u32
}
