//! This region's own record: its replicas, and its heirs in order of round trip.
//!
//! Two lists of heirs are always known together, the newest and the one before. A new list is published only when every
//! other region has said that it has the last one, and that it does not hold this region's replicas. So the newest lists
//! of any two regions are at most one step apart, one list is known to both, and who is behind in *either* of its two lists
//! waits: two regions that do not hear each other never both go first. A list of which no earlier one is known proves
//! nothing, and puts nobody first.

use std::collections::BTreeSet;
use std::sync::Arc;

use core::time::Duration;

use super::message::{PoolReplicas, RecordVersion, RegionName, RegionRecord, SuccessorList};

/// Replicas in one record.
pub(super) const REPLICAS_MAX: usize = 65_536;
/// Pools in one record.
pub(super) const POOLS_MAX: usize = 1_024;
/// Names in a list of heirs.
pub(super) const HEIRS_MAX: usize = 1_024;
/// How much nearer, in parts of 100, a later heir must be than an earlier one to be put before it.
const NEARER_PERCENT: u32 = 25;
/// The least difference of round trips that counts.
const NEARER_MIN: Duration = Duration::from_millis(1);

/// A record with nothing in it.
pub(super) fn empty_record(region: RegionName) -> RegionRecord {
    RegionRecord {
        region,
        version: 0,
        pools: Vec::new(),
        successors: SuccessorList::default(),
    }
}

/// Whether a record is of a size that is kept.
pub(super) fn is_within_limits(record: &RegionRecord) -> bool {
    let replicas: usize = record.pools.iter().map(|pool| pool.replicas.len()).sum();
    let previous = record.successors.previous.as_ref().map_or(0, Vec::len);
    replicas <= REPLICAS_MAX
        && record.pools.len() <= POOLS_MAX
        && record.successors.order.len() <= HEIRS_MAX
        && previous <= HEIRS_MAX
}

/// What is newer in `news` than in `known`, put together; none when nothing is.
pub(super) fn merge(known: &RegionRecord, news: &RegionRecord) -> Option<RegionRecord> {
    let newer_pools = news.version > known.version;
    let newer_heirs = news.successors.version > known.successors.version;
    (newer_pools || newer_heirs).then(|| {
        let pools = if newer_pools { news } else { known };
        let heirs = if newer_heirs { news } else { known };
        RegionRecord {
            region: known.region.clone(),
            version: pools.version,
            pools: pools.pools.clone(),
            successors: heirs.successors.clone(),
        }
    })
}

/// All addresses of a record.
pub(super) fn addresses(pools: &[PoolReplicas]) -> impl Iterator<Item = &Arc<str>> {
    pools.iter().flat_map(|pool| &pool.replicas)
}

impl SuccessorList {
    /// Whether one region goes before another in every list that is known.
    pub(super) fn is_ahead(&self, one: &RegionName, other: &RegionName) -> bool {
        let before = |list: &[RegionName]| {
            rank(list, one) != usize::MAX && rank(list, one) < rank(list, other)
        };
        before(&self.order) && self.previous.as_deref().is_some_and(before)
    }

    /// All regions in the lists that are known.
    pub(super) fn regions(&self) -> impl Iterator<Item = &RegionName> {
        self.order.iter().chain(self.previous.iter().flatten())
    }

    /// The list of this version, if it is known.
    pub(super) fn list(&self, version: u64) -> Option<&[RegionName]> {
        if version == self.version {
            Some(&self.order)
        } else if version.checked_add(1) == Some(self.version) {
            self.previous.as_deref()
        } else {
            None
        }
    }

    /// Whether the newest list may be followed by another: it says something else, or would make this one certain.
    pub(super) fn needs_update(&self, round_trips: &[(Option<Duration>, RegionName)]) -> bool {
        let known: BTreeSet<&RegionName> = self.order.iter().collect();
        let wanted: BTreeSet<&RegionName> = round_trips.iter().map(|(_, name)| name).collect();
        self.previous.as_ref() != Some(&self.order)
            || known != wanted
            || self.is_order_outdated(round_trips)
    }

    /// Whether a later heir is much nearer by now than an earlier one.
    fn is_order_outdated(&self, round_trips: &[(Option<Duration>, RegionName)]) -> bool {
        let round_trip = |name: &RegionName| {
            let found = round_trips.iter().find(|(_, other)| other == name);
            found.and_then(|(round_trip, _)| *round_trip)
        };
        self.order.windows(2).any(|pair| {
            let [earlier, later] = pair else { return false };
            match (round_trip(earlier), round_trip(later)) {
                (Some(earlier), Some(later)) => {
                    earlier > later + later * NEARER_PERCENT / 100 + NEARER_MIN
                }
                (None, Some(_)) => true,
                (_, None) => false,
            }
        })
    }

    /// The next list. When the order of the last one still serves, it is kept.
    pub(super) fn next(&self, mut round_trips: Vec<(Option<Duration>, RegionName)>) -> Self {
        let known: BTreeSet<&RegionName> = self.order.iter().collect();
        let wanted: BTreeSet<&RegionName> = round_trips.iter().map(|(_, name)| name).collect();
        let order = if known == wanted && !self.is_order_outdated(&round_trips) {
            self.order.clone()
        } else {
            round_trips.sort_by_key(|(round_trip, name)| {
                (round_trip.unwrap_or(Duration::MAX), name.clone())
            });
            round_trips.into_iter().map(|(_, name)| name).collect()
        };
        Self {
            version: self.version + 1,
            order,
            previous: Some(self.order.clone()),
        }
    }
}

/// Where a region stands in a list; last of all when it is not there.
pub(super) fn rank(list: &[RegionName], region: &RegionName) -> usize {
    let found = list.iter().position(|name| name == region);
    found.unwrap_or(usize::MAX)
}

/// The newest list that all of these have, by version.
pub(super) fn newest_common(have: impl Iterator<Item = RecordVersion> + Clone) -> Option<u64> {
    let version = have.clone().map(|held| held.successors).min()?;
    let mut have = have;
    let all = have.all(|held| {
        held.successors == version
            || (held.has_previous && held.successors == version.saturating_add(1))
    });
    (all && version > 0).then_some(version)
}
