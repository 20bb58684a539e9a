//! Requests that wait here for a replica (selective pushing, SkyLB 3.3), oldest first.
//!
//! Order of arrival is the order of everything: of service where the policy does not choose otherwise, and of
//! deadlines, since all wait equally long at most. So the oldest one is at once the next one to serve and the
//! next one to expire, and each operation costs the logarithm of the queue's length.
//!
//! Requests that a gateway restricts to some replicas stand in a line for each of those besides, so that they
//! neither hold up the others nor have to be searched for when one of their replicas is free. Requests that may leave for
//! a peer region stand in a line for each set of peers that they have come back from: nearly all in that of the empty
//! set.

use core::cell::Cell;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::index::Match;
use crate::slots::Slot;
use crate::{PeerId, Request, RequestId, Time};

/// How often a waiting request may see a later one go first to a replica that could have served it, unless the policy has
/// more patience.
pub(crate) const PASSED_OVER_MAX: u32 = 64;

/// A request's place: where it stands in the order of arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) place: Place,
    pub(crate) request: Request,
    pub(crate) arrived: Time,
    /// How many later ones went first.
    pub(crate) passed_over: u32,
    /// The only replicas that may serve it, where the gateway restricts them.
    pub(crate) pinned: Option<Box<[Slot]>>,
    /// The replica that it waits for, although others may be free.
    pub(crate) wants: Option<Slot>,
    /// Since when it waits for one although others are free.
    pub(crate) declines_since: Option<Time>,
    /// The longest prefix of its prompt that anybody had when this was last asked: where to look first the next time. Those
    /// that wait are asked about again and again, and only looked at meanwhile.
    pub(crate) known: Cell<Match>,
}

/// The peers that a request has come back from, in order of identity.
type Tried = SmallVec<[PeerId; 2]>;

/// Requests that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeMap<Place, Waiting>,
    places: BTreeMap<RequestId, Place>,
    /// Those that any replica may serve.
    open: BTreeSet<Place>,
    /// The others, under each replica that may serve them.
    pinned: BTreeSet<(Slot, Place)>,
    /// Those that must not be passed over any more.
    overdue: BTreeSet<Place>,
    /// Those that may leave for a peer region, by the peers that they have come back from.
    leaving: BTreeMap<Tried, BTreeSet<Place>>,
    /// How many wait for each replica in particular.
    wanted: BTreeMap<Slot, usize>,
    /// Those in front of this have waited so long that others go first.
    late: Place,
    next: u64,
}

impl Queue {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether any of them is restricted to some replicas.
    pub(crate) fn has_pinned(&self) -> bool {
        !self.pinned.is_empty()
    }

    pub(crate) fn contains(&self, id: RequestId) -> bool {
        self.places.contains_key(&id)
    }

    /// The place behind everybody that has had one.
    pub(crate) fn next_place(&mut self) -> Place {
        let place = Place(self.next);
        self.next += 1;
        place
    }

    /// Whether somebody waits for one replica in particular.
    pub(crate) fn has_wishes(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// How many wait for this replica in particular.
    pub(crate) fn wanting(&self, slot: Slot) -> usize {
        self.wanted.get(&slot).copied().unwrap_or_default()
    }

    /// A request waits for this replica in particular from now on, or for any.
    pub(crate) fn want(&mut self, place: Place, wants: Option<Slot>, now: Time) {
        let Some(waiting) = self.waiting.get_mut(&place) else {
            return;
        };
        if wants.is_some() {
            waiting.declines_since.get_or_insert(now);
        }
        let before = core::mem::replace(&mut waiting.wants, wants);
        self.count_wish(before, wants);
    }

    /// This replica leaves: those that waited for it wait for any; says whether there were some.
    pub(crate) fn forget_wishes(&mut self, slot: Slot) -> bool {
        if self.wanted.remove(&slot).is_none() {
            return false;
        }
        for waiting in self.waiting.values_mut() {
            if waiting.wants == Some(slot) {
                waiting.wants = None;
                waiting.declines_since = None;
            }
        }
        true
    }

    fn count_wish(&mut self, before: Option<Slot>, after: Option<Slot>) {
        if before == after {
            return;
        }
        if let Some(slot) = before
            && let Some(count) = self.wanted.get_mut(&slot)
        {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&slot);
            }
        }
        if let Some(slot) = after {
            *self.wanted.entry(slot).or_default() += 1;
        }
    }

    /// Puts a request at its place: at the end, unless it has been away.
    pub(crate) fn push(&mut self, waiting: Waiting) -> Place {
        let place = waiting.place;
        self.count_wish(None, waiting.wants);
        self.places.insert(waiting.request.id, place);
        if let Some(tried) = tried_of(&waiting.request) {
            self.leaving.entry(tried).or_default().insert(place);
        }
        match &waiting.pinned {
            None => {
                self.open.insert(place);
            }
            Some(slots) => self.pinned.extend(slots.iter().map(|slot| (*slot, place))),
        }
        self.waiting.insert(place, waiting);
        place
    }

    /// All of them, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Waiting> + '_ {
        self.waiting.values()
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Waiting> {
        self.waiting.get(&place)
    }

    /// Whether a request waits that this replica may serve.
    pub(crate) fn may_go(&self, place: Place, slot: Slot) -> bool {
        self.get(place).is_some_and(|waiting| {
            let pinned = waiting.pinned.as_deref();
            pinned.is_none_or(|slots| slots.contains(&slot))
        })
    }

    pub(crate) fn place_of(&self, id: RequestId) -> Option<Place> {
        self.places.get(&id).copied()
    }

    /// Takes a request out, wherever it stands.
    pub(crate) fn remove(&mut self, place: Place) -> Option<Waiting> {
        let waiting = self.waiting.remove(&place)?;
        self.count_wish(waiting.wants, None);
        self.places.remove(&waiting.request.id);
        self.open.remove(&place);
        self.overdue.remove(&place);
        for slot in waiting.pinned.iter().flatten() {
            self.pinned.remove(&(*slot, place));
        }
        if let Some(tried) = tried_of(&waiting.request)
            && let Some(line) = self.leaving.get_mut(&tried)
        {
            line.remove(&place);
            if line.is_empty() {
                self.leaving.remove(&tried);
            }
        }
        Some(waiting)
    }

    /// The oldest one.
    pub(crate) fn oldest(&self) -> Option<(Place, &Waiting)> {
        self.waiting.first_key_value().map(|(p, w)| (*p, w))
    }

    /// The oldest one when it has waited for this long.
    pub(crate) fn expired(&self, now: Time, wait_max: Duration) -> Option<Place> {
        self.oldest()
            .filter(|(_, waiting)| waiting.arrived.after(wait_max) <= now)
            .map(|(place, _)| place)
    }

    /// The oldest one that may leave for a peer region, when there is one for those that have come back from these.
    pub(crate) fn oldest_leaving(&self, is_open_to: impl Fn(&[PeerId]) -> bool) -> Option<Place> {
        self.leaving
            .iter()
            .filter(|(tried, _)| is_open_to(tried))
            .filter_map(|(_, line)| line.first().copied())
            .min()
    }

    /// Those that have waited for this long come behind the others from now on, and may be passed over without bound.
    pub(crate) fn put_late_last(&mut self, now: Time, after: Duration) {
        while let Some((place, waiting)) = self.waiting.range(self.late..).next() {
            if waiting.arrived.after(after) > now {
                return;
            }
            self.late = Place(place.0.saturating_add(1));
        }
    }

    /// Nobody is late any more, by other rules.
    pub(crate) const fn forget_late(&mut self) {
        self.late = Place::FIRST;
    }

    /// Those that this replica may serve, oldest first; the late ones behind the others.
    pub(crate) fn eligible(&self, slot: Slot) -> impl Iterator<Item = (Place, &Waiting)> + '_ {
        let late = Place(self.late.0.saturating_sub(1));
        let late = (self.late > Place::FIRST).then(|| self.between(slot, Place::FIRST, late));
        self.on_time(slot).chain(late.into_iter().flatten())
    }

    /// Those of them that are not late.
    pub(crate) fn on_time(&self, slot: Slot) -> impl Iterator<Item = (Place, &Waiting)> + '_ {
        self.between(slot, self.late, Place::LAST)
    }

    /// Those that this replica may serve from one place to another, oldest first.
    fn between(
        &self,
        slot: Slot,
        from: Place,
        to: Place,
    ) -> impl Iterator<Item = (Place, &Waiting)> + '_ {
        let mut open = self.open.range(from..=to).copied().peekable();
        let mut pinned = self
            .pinned
            .range((slot, from)..=(slot, to))
            .map(|(_, place)| *place)
            .peekable();
        core::iter::from_fn(move || {
            let place = match (open.peek(), pinned.peek()) {
                (Some(a), Some(b)) if a < b => open.next(),
                (_, Some(_)) => pinned.next(),
                (_, None) => open.next(),
            }?;
            Some((place, self.waiting.get(&place)?))
        })
    }

    /// Counts one more that went first for each older one that the replica could have served. With so many it must not be
    /// passed over any more.
    pub(crate) fn pass_over(&mut self, place: Place, slot: Slot, at_most: usize, patience: u32) {
        let older: Vec<Place> = self
            .on_time(slot)
            .map(|(older, _)| older)
            .take_while(|older| *older < place)
            .take(at_most)
            .collect();
        for older in older {
            if let Some(waiting) = self.waiting.get_mut(&older) {
                waiting.passed_over = waiting.passed_over.saturating_add(1);
                if waiting.passed_over >= patience {
                    self.overdue.insert(older);
                }
            }
        }
    }

    /// The oldest one that must not be passed over on this replica any more.
    pub(crate) fn overdue(&self, slot: Slot) -> Option<Place> {
        let mut overdue = self.overdue.range(self.late..).copied();
        overdue.find(|place| self.may_go(*place, slot))
    }

    /// A replica takes no new requests any more: those restricted to it alone are returned, with nowhere to go.
    pub(crate) fn unpin(&mut self, slot: Slot) -> Vec<Place> {
        let places: Vec<Place> = self
            .pinned
            .range((slot, Place::FIRST)..=(slot, Place::LAST))
            .map(|(_, place)| *place)
            .collect();
        let mut stranded = Vec::new();
        for place in places {
            self.pinned.remove(&(slot, place));
            if let Some(waiting) = self.waiting.get_mut(&place)
                && let Some(slots) = &mut waiting.pinned
            {
                *slots = slots.iter().copied().filter(|s| *s != slot).collect();
                if slots.is_empty() {
                    stranded.push(place);
                }
            }
        }
        stranded
    }

    #[cfg(test)]
    fn order(&self) -> Vec<u64> {
        self.waiting.values().map(|w| w.request.id.0).collect()
    }
}

/// The line in which a request stands that may leave the region.
fn tried_of(request: &Request) -> Option<Tried> {
    let mut tried = Tried::from_slice(request.tried()?);
    tried.sort_unstable();
    tried.dedup();
    Some(tried)
}

impl Place {
    /// In front of everybody.
    pub(crate) const FIRST: Self = Self(0);

    /// Behind everybody.
    pub(crate) const LAST: Self = Self(u64::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scope, Tier};
    use isotherm_fingerprint::Fingerprint;
    use std::sync::Arc;

    fn waiting(id: u64, pinned: Option<&[u16]>) -> Waiting {
        Waiting {
            place: Place(id),
            request: Request {
                id: RequestId(id),
                fingerprint: Arc::new(Fingerprint::default()),
                session: None,
                tier: Tier::default(),
                prompt_tokens: 0,
                output_tokens_max: None,
                subset: None,
                scope: Scope::default(),
            },
            arrived: Time::from_nanos(id),
            passed_over: 0,
            pinned: pinned.map(|slots| slots.iter().map(|s| Slot(*s)).collect()),
            wants: None,
            declines_since: None,
            known: Cell::default(),
        }
    }

    fn eligible(queue: &Queue, slot: u16) -> Vec<u64> {
        queue
            .eligible(Slot(slot))
            .map(|(_, w)| w.request.id.0)
            .collect()
    }

    #[test]
    fn each_replica_sees_those_it_may_serve_in_order_of_arrival() {
        let mut queue = Queue::default();
        queue.push(waiting(1, Some(&[7])));
        queue.push(waiting(2, None));
        queue.push(waiting(3, Some(&[7, 8])));
        queue.push(waiting(4, None));
        assert_eq!(eligible(&queue, 7), [1, 2, 3, 4]);
        assert_eq!(eligible(&queue, 8), [2, 3, 4]);
        assert_eq!(eligible(&queue, 9), [2, 4]);
    }

    #[test]
    fn whoever_leaves_leaves_everywhere() {
        let mut queue = Queue::default();
        for id in 1..=3 {
            queue.push(waiting(id, (id == 2).then_some(&[7_u16, 8][..])));
        }
        let place = queue.place_of(RequestId(2)).unwrap();
        assert!(queue.remove(place).is_some());
        assert!(queue.remove(place).is_none());
        assert!(!queue.has_pinned());
        assert_eq!(queue.order(), [1, 3]);
    }

    #[test]
    fn a_replica_that_leaves_strands_only_those_with_no_other() {
        let mut queue = Queue::default();
        queue.push(waiting(1, Some(&[7])));
        queue.push(waiting(2, Some(&[7, 8])));
        let stranded = queue.unpin(Slot(7));
        assert_eq!(stranded, [queue.place_of(RequestId(1)).unwrap()]);
        assert_eq!(eligible(&queue, 8), [2]);
    }

    #[test]
    fn only_older_ones_are_passed_over() {
        let mut queue = Queue::default();
        let places: Vec<Place> = (1..=4).map(|id| queue.push(waiting(id, None))).collect();
        queue.pass_over(places[2], Slot(0), 64, 64);
        let counts: Vec<u32> = queue.waiting.values().map(|w| w.passed_over).collect();
        assert_eq!(counts, [1, 1, 0, 0]);
    }
}
