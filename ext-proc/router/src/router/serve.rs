//! Who is served next: what an event has freed is offered to those that wait.
//!
//! The policy says who takes a freed replica, and where that one goes. The bounds on fairness are kept here.

use core::time::Duration;
use smallvec::SmallVec;

use super::Router;
use super::admit::{Settled, Verdict};
use crate::Time;
use crate::policy::{Declined, LOOKED_AT_MAX, Taken};
use crate::queue::Place;
use crate::slots::Slot;

/// How often those are asked again that wait for one replica although others are free.
const REVIEW_INTERVAL: Duration = Duration::from_millis(50);

/// How many replicas they are offered each time.
const REVIEWED_MAX: usize = 16;

/// What came of offering a replica to those that wait.
enum Served {
    /// One of them went somewhere.
    Somebody,
    /// The one that was asked wants to wait for another replica.
    Declined,
    /// Nobody is to take it.
    Nobody,
}

impl Router {
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
    pub(super) fn go(&mut self, place: Place, settled: Settled) {
        let patience = self.policy.patience();
        self.queue
            .pass_over(place, settled.slot, LOOKED_AT_MAX, patience);
        if let Some(waiting) = self.dequeue(place) {
            self.dispatch(waiting, settled);
        }
    }

    fn first_eligible(&self, slot: Slot, declined: &[Place]) -> Option<Place> {
        self.queue
            .eligible(slot)
            .map(|(place, _)| place)
            .find(|place| !declined.contains(place))
    }
}
