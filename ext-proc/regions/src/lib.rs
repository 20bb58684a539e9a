//! The core across regions: which region decides about the replicas of each, and the type of a heartbeat.
//!
//! [`Leases`] is *sans I/O* like the [`Router`](isotherm_router::Router): it takes events and times, and returns work for the
//! driver. It holds the lease of this region's own replicas in a store, and takes those of a dead region.
//! `docs/design/recovery.md` has the rules.

mod entry;
mod leases;
mod message;

pub use entry::{PoolReplicas, RegionEntry, StoreVersion, StoredEntry};
pub use leases::{
    EntryStatus, LeaseConfig, LeaseCounters, LeaseEffect, LeaseInputs, Leases, WriteResult,
};
pub use message::{Heartbeat, RegionName};
