//! Records of regions: their replicas, and their successors in order of round trip.
//!
//! A record holds the two newest successor lists, of which any two regions have one in common (`docs/design/recovery.md`). A
//! list without its predecessor puts no region ahead.

use std::collections::BTreeSet;
use std::sync::Arc;

use core::time::Duration;

use super::message::{PoolReplicas, RecordVersion, RegionName, RegionRecord, SuccessorList};

pub(super) const REPLICAS_MAX: usize = 65_536;
pub(super) const POOLS_MAX: usize = 1_024;
/// Names in a successor list.
pub(super) const SUCCESSORS_MAX: usize = 1_024;
/// Percentage by which a later successor must be nearer than an earlier one to be put before it.
const NEARER_PERCENT: u32 = 25;
/// Smallest difference of round trips that counts.
const NEARER_MIN: Duration = Duration::from_millis(1);

/// Returns a record without replicas and successors.
pub(super) fn empty_record(region: RegionName) -> RegionRecord {
    RegionRecord {
        region,
        version: 0,
        pools: Vec::new(),
        successors: SuccessorList::default(),
    }
}

pub(super) fn is_within_limits(record: &RegionRecord) -> bool {
    let replicas: usize = record.pools.iter().map(|pool| pool.replicas.len()).sum();
    let previous = record.successors.previous.as_ref().map_or(0, Vec::len);
    replicas <= REPLICAS_MAX
        && record.pools.len() <= POOLS_MAX
        && record.successors.order.len() <= SUCCESSORS_MAX
        && previous <= SUCCESSORS_MAX
}

/// Merges the newer parts of `update` into `known`; `None` when no part is newer.
pub(super) fn merge(known: &RegionRecord, update: &RegionRecord) -> Option<RegionRecord> {
    let newer_pools = update.version > known.version;
    let newer_list = update.successors.version > known.successors.version;
    (newer_pools || newer_list).then(|| {
        let pools = if newer_pools { update } else { known };
        let list = if newer_list { update } else { known };
        RegionRecord {
            region: known.region.clone(),
            version: pools.version,
            pools: pools.pools.clone(),
            successors: list.successors.clone(),
        }
    })
}

pub(super) fn addresses(pools: &[PoolReplicas]) -> impl Iterator<Item = &Arc<str>> {
    pools.iter().flat_map(|pool| &pool.replicas)
}

impl SuccessorList {
    /// Whether a region precedes another in both lists.
    pub(super) fn is_ahead(&self, one: &RegionName, other: &RegionName) -> bool {
        let before = |list: &[RegionName]| {
            rank(list, one) != usize::MAX && rank(list, one) < rank(list, other)
        };
        before(&self.order) && self.previous.as_deref().is_some_and(before)
    }

    /// Returns all regions of both lists.
    pub(super) fn regions(&self) -> impl Iterator<Item = &RegionName> {
        self.order.iter().chain(self.previous.iter().flatten())
    }

    /// Returns the list of a version, if it is one of the two.
    pub(super) fn list(&self, version: u64) -> Option<&[RegionName]> {
        if version == self.version {
            Some(&self.order)
        } else if version.checked_add(1) == Some(self.version) {
            self.previous.as_deref()
        } else {
            None
        }
    }

    /// Whether a next list would change something: the regions, their order, or the equality of both lists.
    pub(super) fn needs_update(&self, round_trips: &[(Option<Duration>, RegionName)]) -> bool {
        let known: BTreeSet<&RegionName> = self.order.iter().collect();
        let wanted: BTreeSet<&RegionName> = round_trips.iter().map(|(_, name)| name).collect();
        self.previous.as_ref() != Some(&self.order)
            || known != wanted
            || self.is_order_outdated(round_trips)
    }

    /// Whether a later successor has become much nearer than an earlier one.
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

    /// Returns the next list, which keeps the order while it is not outdated.
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

/// Returns the position of a region in a list; the maximum when it is absent.
pub(super) fn rank(list: &[RegionName], region: &RegionName) -> usize {
    let found = list.iter().position(|name| name == region);
    found.unwrap_or(usize::MAX)
}

/// Returns the version of the newest list that all regions have.
pub(super) fn newest_common(have: impl Iterator<Item = RecordVersion> + Clone) -> Option<u64> {
    let version = have.clone().map(|held| held.successors).min()?;
    let mut have = have;
    let all = have.all(|held| {
        held.successors == version
            || (held.has_previous && held.successors == version.saturating_add(1))
    });
    (all && version > 0).then_some(version)
}
