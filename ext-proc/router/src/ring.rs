//! A hash ring with virtual nodes, over replicas or peers. A walk from a key's point finds the first usable one.
//!
//! Points depend on names, so a replica that leaves and returns gets its old points, and only its neighbours' keys move.

use twox_hash::XxHash3_64;

use crate::Request;
use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// Points on the ring for each replica, with which shares differ by about a tenth.
const VIRTUAL_NODES: u64 = 128;

/// Parts of the ring. Thousands of replicas have a hundred thousand points, and one that joins moves few of them.
const ARCS: u64 = 256;

/// A point of a replica.
type Place = (u64, ReplicaIndex);

/// Points of replicas on a circle of hashes.
#[derive(Debug)]
pub struct Ring {
    /// The points of each part of the ring, in order.
    arcs: Vec<Vec<Place>>,
    /// The number of this ring among several independent ones.
    which: u64,
}

impl Ring {
    /// Seed of one of several independent rings.
    #[must_use]
    pub fn numbered(which: u64) -> Self {
        let arcs = (0..ARCS).map(|_| Vec::new()).collect();
        Self { arcs, which }
    }

    /// Adds the points of a replica of this name.
    pub fn join(&mut self, replica: ReplicaIndex, name: &str) {
        for point in points(name, self.which) {
            let place = (point, replica);
            if let Some(arc) = self.arcs.get_mut(arc_of(point)) {
                arc.insert(arc.partition_point(|other| *other < place), place);
            }
        }
    }

    /// Removes the points of a replica.
    pub fn leave(&mut self, replica: ReplicaIndex) {
        for arc in &mut self.arcs {
            arc.retain(|(_, other)| *other != replica);
        }
    }

    /// The first candidate behind the request's key, `except` left aside.
    #[must_use]
    pub fn walk(
        &self,
        request: &Request,
        candidates: &ReplicaSet,
        except: &[ReplicaIndex],
    ) -> Option<ReplicaIndex> {
        if candidates.len() == 1 && except.is_empty() {
            // The usual case under load, and the longest walk.
            return candidates.nth(0);
        }
        self.find(key_of(request), |replica| {
            candidates.contains(replica) && !except.contains(&replica)
        })
    }

    /// The first open replica behind a point.
    pub fn find(&self, point: u64, is_open: impl Fn(ReplicaIndex) -> bool) -> Option<ReplicaIndex> {
        let (before, from) = self.arcs.split_at_checked(arc_of(point))?;
        let (arc, after) = from.split_first()?;
        let first = arc.partition_point(|(other, _)| *other < point);
        let (round, behind) = arc.split_at_checked(first)?;
        let rest = after.iter().chain(before).flatten();
        behind
            .iter()
            .chain(rest)
            .chain(round)
            .map(|(_, replica)| *replica)
            .find(|replica| is_open(*replica))
    }
}

impl Default for Ring {
    fn default() -> Self {
        Self::numbered(0)
    }
}

/// How near behind the request's key a replica of this name stands: 1 is at the key, 0 a whole round away.
#[must_use]
pub fn nearness(request: &Request, name: &str) -> f64 {
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

/// The hash of the session; without one, requests are spread.
fn key_of(request: &Request) -> u64 {
    let key = request.session.map_or(request.id.0, |session| session.0);
    XxHash3_64::oneshot(&key.to_le_bytes())
}

const fn arc_of(point: u64) -> usize {
    (point / (u64::MAX / ARCS + 1)) as usize
}

fn points(name: &str, which: u64) -> impl Iterator<Item = u64> {
    let first = which * VIRTUAL_NODES;
    (first..first + VIRTUAL_NODES).map(|i| XxHash3_64::oneshot_with_seed(i, name.as_bytes()))
}
