//! A hash ring with virtual nodes: which target's turn a key is, walking past those that cannot take it.
//!
//! Targets stand on the ring by name: one that leaves and returns takes its old places, and only its neighbours' keys
//! move.

use std::collections::BTreeSet;

use twox_hash::XxHash3_64;

use crate::Request;
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// Places on the ring for each target: shares differ by about a tenth then.
const VIRTUAL_NODES: u64 = 128;

/// A hash ring.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    places: BTreeSet<(u64, ReplicaIndex)>,
    /// Which of several independent rings over the same targets.
    which: u64,
}

impl Ring {
    /// One of several rings that know nothing of each other.
    pub(crate) const fn numbered(which: u64) -> Self {
        Self {
            places: BTreeSet::new(),
            which,
        }
    }

    pub(crate) fn join(&mut self, slot: ReplicaIndex, name: &str) {
        let points = points(name, self.which);
        self.places.extend(points.map(|point| (point, slot)));
    }

    pub(crate) fn leave(&mut self, slot: ReplicaIndex, name: &str) {
        for point in points(name, self.which) {
            self.places.remove(&(point, slot));
        }
    }

    /// The first candidate behind the request's key.
    pub(crate) fn walk(
        &self,
        request: &Request,
        candidates: &ReplicaSet,
        except: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        if candidates.len() == 1 && except.is_empty() {
            // The usual case under load, and the longest walk.
            return candidates.nth(0);
        }
        self.find(key_of(request), |slot| {
            candidates.contains(slot) && !except.contains(&slot)
        })
    }

    /// The first such target behind a point.
    pub(crate) fn find(
        &self,
        point: u64,
        is_open: impl Fn(ReplicaIndex) -> bool,
    ) -> Option<ReplicaIndex> {
        let behind = self.places.range((point, ReplicaIndex(0))..);
        let round = self.places.range(..(point, ReplicaIndex(0)));
        behind
            .chain(round)
            .map(|(_, slot)| *slot)
            .find(|slot| is_open(*slot))
    }
}

/// How near behind the request's key a target of this name stands: 1 is right there, 0 a whole round away.
pub(crate) fn nearness(request: &Request, name: &str) -> f64 {
    let key = key_of(request);
    let distance = points(name, 0)
        .map(|point| point.wrapping_sub(key))
        .min()
        .unwrap_or(u64::MAX);
    #[expect(
        clippy::cast_precision_loss,
        reason = "for people; the last digits are not read"
    )]
    let share = distance as f64 / u64::MAX as f64;
    1.0 - share
}

/// The session; without one, requests are spread.
fn key_of(request: &Request) -> u64 {
    let key = request.session.map_or(request.id.0, |session| session.0);
    XxHash3_64::oneshot(&key.to_le_bytes())
}

/// Where a target of this name stands on one of the rings.
fn points(name: &str, which: u64) -> impl Iterator<Item = u64> {
    let first = which * VIRTUAL_NODES;
    (first..first + VIRTUAL_NODES).map(|i| XxHash3_64::oneshot_with_seed(i, name.as_bytes()))
}
