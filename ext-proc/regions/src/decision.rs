//! Results of the adoption rule.

use super::message::RegionName;

/// Kind of outage that allows an adoption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// The region's service is proved not to run, or declared lost.
    ServiceDead,
    /// The region's service reports that it has no gateway.
    NoGateway,
}

/// Whether this region adopts the replicas of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdoptionDecision {
    /// This region has adopted them.
    AlreadyAdopted,
    /// The owner is up.
    NotDown,
    /// This region may adopt them now.
    Allowed,
    /// The owner is down, and something prevents the adoption.
    Blocked(AdoptionBlocker),
}

/// Reason that prevents the adoption of a region that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdoptionBlocker {
    /// The configuration disables adoption.
    Disabled,
    /// This region has no gateway.
    NoGateway,
    /// This region has no record of the owner.
    NoRecord,
    /// The owner's death is not proved, or another region hears the owner.
    NotProvedDead,
    /// The replicas do not answer this region.
    ReplicasUnreachable,
    /// This region yields to another one.
    Yielded,
    /// The named region is not heard, its death is not proved, and it may have adopted the replicas.
    Unaccounted(RegionName),
    /// The named region has adopted the replicas.
    AdoptedBy(RegionName),
    /// The named region goes first.
    RegionAhead(RegionName),
}
