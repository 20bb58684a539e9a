//! The record of a region in the store.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::message::RegionName;

/// Limit of pools in a record that another region has written.
const POOLS_MAX: usize = 1_024;
/// Limit of replicas in such a record, over all pools.
const REPLICAS_MAX: usize = 16_384;
/// Limit of the bytes in a region's name, and in its address.
const NAME_BYTES_MAX: usize = 256;

/// The version of a record, which the store changes with every write; opaque.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreVersion(pub Arc<str>);

/// A record with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// The record.
    pub entry: RegionEntry,
    /// Version of the record.
    pub version: StoreVersion,
}

/// The record of one region: its replicas, and the region that decides about them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionEntry {
    /// Name of the region.
    pub region: RegionName,
    /// Address at which the services of other regions reach the region.
    pub address: Arc<str>,
    /// Replicas by pool.
    pub pools: Vec<PoolReplicas>,
    /// Other regions, nearest first. The first one takes the lease first.
    pub nearest: Vec<RegionName>,
    /// Region that holds the lease; `None` after it gave the lease up.
    pub holder: Option<RegionName>,
    /// Grows with each change of the holder: the fence.
    pub revision: u64,
    /// Grows with each renewal.
    pub renewals: u64,
    /// Grows while the region is up and another region holds its lease: a sign that the holder may give the lease back.
    pub beats: u64,
}

/// Replicas of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReplicas {
    /// Name of the model.
    pub model: Arc<str>,
    /// Addresses, opaque to the core.
    pub replicas: Vec<Arc<str>>,
}

impl RegionEntry {
    /// Number of replicas in all pools.
    pub fn replicas(&self) -> usize {
        self.pools.iter().map(|pool| pool.replicas.len()).sum()
    }

    /// Whether `region` holds the lease.
    pub(crate) fn is_held_by(&self, region: &RegionName) -> bool {
        self.holder.as_ref() == Some(region)
    }

    /// Whether the record is within the limits of names, pools and replicas.
    pub fn is_within_limits(&self) -> bool {
        let is_name = |name: &str| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        is_name(&self.region)
            && self.address.len() <= NAME_BYTES_MAX
            && self.pools.len() <= POOLS_MAX
            && self.replicas() <= REPLICAS_MAX
    }
}
