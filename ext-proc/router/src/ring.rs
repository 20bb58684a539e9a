//! A hash ring with virtual nodes: which target's turn a key is, walking past those that cannot take it.
//!
//! Targets stand on the ring by name: one that leaves and returns takes its old places, and only its neighbours' keys
//! move.

use std::collections::BTreeSet;

use twox_hash::XxHash3_64;

use crate::Request;
use crate::slots::{Slot, SlotSet};

/// Places on the ring for each target: shares differ by about a tenth then.
const VIRTUAL_NODES: u64 = 128;

/// A hash ring.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    places: BTreeSet<(u64, Slot)>,
}

impl Ring {
    pub(crate) fn join(&mut self, slot: Slot, name: &str) {
        self.places.extend(points(name).map(|point| (point, slot)));
    }

    pub(crate) fn leave(&mut self, slot: Slot, name: &str) {
        for point in points(name) {
            self.places.remove(&(point, slot));
        }
    }

    /// The first candidate behind the request's key.
    pub(crate) fn walk(
        &self,
        request: &Request,
        candidates: &SlotSet,
        except: &[Slot],
    ) -> Option<Slot> {
        if candidates.len() == 1 && except.is_empty() {
            // The usual case under load, and the longest walk.
            return candidates.nth(0);
        }
        let key = key_of(request);
        let behind = self.places.range((key, Slot(0))..);
        let round = self.places.range(..(key, Slot(0)));
        behind
            .chain(round)
            .map(|(_, slot)| *slot)
            .find(|slot| candidates.contains(*slot) && !except.contains(slot))
    }
}

/// How near behind the request's key a target of this name stands: 1 is right there, 0 a whole round away.
pub(crate) fn nearness(request: &Request, name: &str) -> f64 {
    let key = key_of(request);
    let distance = points(name)
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

fn points(name: &str) -> impl Iterator<Item = u64> {
    (0..VIRTUAL_NODES).map(|i| XxHash3_64::oneshot_with_seed(i, name.as_bytes()))
}
