//! `consistent_hash`: a hash ring with virtual nodes on the session key (SkyLB-CH, Listing 1 lines 23 to 26).
//!
//! Blind to prompts and yet good for caches, because one session's prompts extend each other. Unavailable replicas
//! are walked past, so a session comes back to its own replica as soon as that can take it. Replicas stand on the
//! ring by name: one that leaves and returns takes its old places, and only its neighbours' sessions move.

use std::collections::BTreeSet;

use twox_hash::XxHash3_64;

use super::{Placement, Policy, View};
use crate::index::Match;
use crate::slots::Slot;
use crate::{Reason, Request};

/// Places on the ring for each replica: shares differ by about a tenth then.
const VIRTUAL_NODES: u64 = 128;

/// A hash ring.
#[derive(Debug, Default)]
pub(super) struct ConsistentHash {
    ring: BTreeSet<(u64, Slot)>,
}

impl Policy for ConsistentHash {
    fn place(&self, request: &Request, view: &View<'_>) -> Option<Placement> {
        Some(Placement::Now {
            slot: self.walk(request, view, &[])?,
            reason: Reason::Ring,
            found: None,
        })
    }

    fn next_best(
        &self,
        request: &Request,
        _found: Option<&Match>,
        view: &View<'_>,
        failed: &[Slot],
    ) -> Option<Slot> {
        self.walk(request, view, failed)
    }

    /// How near behind the key it stands, as a share of the ring.
    fn score(&self, request: &Request, slot: Slot, view: &View<'_>) -> f64 {
        let key = key_of(request);
        let distance = view
            .fleet
            .get(slot)
            .into_iter()
            .flat_map(|replica| points(&replica.name))
            .map(|point| point.wrapping_sub(key))
            .min()
            .unwrap_or(u64::MAX);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a score is for people; its last digits are not read"
        )]
        let share = distance as f64 / u64::MAX as f64;
        1.0 - share
    }

    fn joined(&mut self, slot: Slot, name: &str) {
        self.ring.extend(points(name).map(|point| (point, slot)));
    }

    fn left(&mut self, slot: Slot, name: &str) {
        for point in points(name) {
            self.ring.remove(&(point, slot));
        }
    }
}

impl ConsistentHash {
    /// The first candidate behind the request's key.
    fn walk(&self, request: &Request, view: &View<'_>, except: &[Slot]) -> Option<Slot> {
        if view.candidates.len() == 1 && except.is_empty() {
            // The usual case under load, and the longest walk.
            return view.candidates.nth(0);
        }
        let key = key_of(request);
        let behind = self.ring.range((key, Slot(0))..);
        let round = self.ring.range(..(key, Slot(0)));
        behind
            .chain(round)
            .map(|(_, slot)| *slot)
            .find(|slot| view.candidates.contains(*slot) && !except.contains(slot))
    }
}

/// The session; without one, requests are spread.
fn key_of(request: &Request) -> u64 {
    let key = request.session.map_or(request.id.0, |session| session.0);
    XxHash3_64::oneshot(&key.to_le_bytes())
}

fn points(name: &str) -> impl Iterator<Item = u64> {
    (0..VIRTUAL_NODES).map(|i| XxHash3_64::oneshot_with_seed(i, name.as_bytes()))
}
