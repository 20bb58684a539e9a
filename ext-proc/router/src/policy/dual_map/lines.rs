//! Who waits for which replica: a line for each, oldest first.
//!
//! In the paper each engine has a queue of its own and requests are migrated between them. Here they wait in the router,
//! each in the line of the candidate that it was given, so a move is an entry in a map and costs the engines nothing.

use std::collections::BTreeMap;

use super::pair::Pair;
use crate::Request;
use crate::RequestId;
use crate::Time;
use crate::queue::{Place, Waiting};
use crate::slots::Slot;

/// One that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) request: Request,
    pub(super) arrived: Time,
    /// The only replicas that may serve it, where it is restricted: those that existed when it came.
    pub(super) pinned: Option<Box<[Slot]>>,
    /// Its candidates, when it was put there.
    pub(super) pair: Pair,
    /// In whose line it stands.
    pub(super) slot: Slot,
    /// What that one has to compute of it, in tokens, when it was put there.
    pub(super) tokens: f64,
}

/// The lines of all replicas.
#[derive(Debug, Default)]
pub(super) struct Lines {
    entries: BTreeMap<Place, Entry>,
    places: BTreeMap<RequestId, Place>,
    /// Those that have somebody.
    lines: BTreeMap<Slot, Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Who stands there, and what is to be computed of each, in tokens.
    places: BTreeMap<Place, f64>,
    tokens: f64,
}

impl Lines {
    /// Puts one at the end of a replica's line, or where its place in the order of arrival is.
    pub(super) fn push(&mut self, waiting: &Waiting, pair: Pair, slot: Slot, tokens: f64) {
        let place = waiting.place;
        self.remove(place);
        let entry = Entry {
            request: waiting.request.clone(),
            arrived: waiting.arrived,
            pinned: waiting.pinned.clone(),
            pair,
            slot,
            tokens,
        };
        self.places.insert(entry.request.id, place);
        self.enter(place, slot, tokens);
        self.entries.insert(place, entry);
    }

    pub(super) fn remove(&mut self, place: Place) {
        if let Some(entry) = self.entries.remove(&place) {
            self.places.remove(&entry.request.id);
            self.leave(place, entry.slot);
        }
    }

    /// Its candidates are others now.
    pub(super) fn pair(&mut self, place: Place, pair: Pair) {
        if let Some(entry) = self.entries.get_mut(&place) {
            entry.pair = pair;
        }
    }

    /// From one line to another.
    pub(super) fn shift(&mut self, place: Place, to: Slot, tokens: f64) {
        let Some(entry) = self.entries.get_mut(&place) else {
            return;
        };
        let from = core::mem::replace(&mut entry.slot, to);
        entry.tokens = tokens;
        self.leave(place, from);
        self.enter(place, to, tokens);
    }

    pub(super) fn get(&self, place: Place) -> Option<&Entry> {
        self.entries.get(&place)
    }

    pub(super) fn place_of(&self, id: RequestId) -> Option<Place> {
        self.places.get(&id).copied()
    }

    /// The oldest in a replica's line.
    pub(super) fn first(&self, slot: Slot) -> Option<Place> {
        let line = self.lines.get(&slot)?;
        line.places.first_key_value().map(|(place, _)| *place)
    }

    /// Who has somebody in its line.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.lines.keys().copied()
    }

    /// Everybody who waits.
    pub(super) fn everybody(&self) -> impl Iterator<Item = Place> + '_ {
        self.entries.keys().copied()
    }

    /// What a replica has to compute of those in its line, in tokens.
    pub(super) fn tokens(&self, slot: Slot) -> f64 {
        self.lines.get(&slot).map_or(0.0, |line| line.tokens)
    }

    /// The last ones of a replica's line, at most so many, the last one first: each with the tokens in front of it.
    pub(super) fn last(
        &self,
        slot: Slot,
        at_most: usize,
    ) -> impl Iterator<Item = (Place, &Entry, f64)> + '_ {
        let mut ahead = self.tokens(slot);
        self.lines
            .get(&slot)
            .into_iter()
            .flat_map(|line| line.places.iter().rev())
            .take(at_most)
            .filter_map(move |(place, tokens)| {
                ahead -= tokens;
                Some((*place, self.entries.get(place)?, ahead.max(0.0)))
            })
    }

    /// The tokens in front of one in its line, if no more than so many stand there.
    pub(super) fn ahead_of(&self, place: Place, at_most: usize) -> Option<f64> {
        let line = self.lines.get(&self.entries.get(&place)?.slot)?;
        let mut ahead = 0.0;
        for (other, tokens) in line.places.iter().take(at_most) {
            if *other == place {
                return Some(ahead);
            }
            ahead += tokens;
        }
        None
    }

    fn enter(&mut self, place: Place, slot: Slot, tokens: f64) {
        let line = self.lines.entry(slot).or_default();
        line.places.insert(place, tokens);
        line.tokens += tokens;
    }

    fn leave(&mut self, place: Place, slot: Slot) {
        let Some(line) = self.lines.get_mut(&slot) else {
            return;
        };
        if let Some(tokens) = line.places.remove(&place) {
            line.tokens -= tokens;
        }
        if line.places.is_empty() {
            self.lines.remove(&slot);
        }
    }
}
