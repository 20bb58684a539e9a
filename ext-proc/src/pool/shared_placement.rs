//! Placements in terms that every service of a region knows: addresses of replicas and names of regions.
//!
//! The router identifies both by ids that mean nothing to another service.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_router::{Placement, Target};
use serde::{Deserialize, Serialize};

use super::membership::Membership;
use super::peer_table::PeerTable;

/// A placement that a service shares with its siblings.
pub type SharedPlacement = Placement<SharedTarget>;

/// The target of a shared placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedTarget {
    /// A replica.
    Replica(SocketAddr),
    /// Another region.
    Peer(Arc<str>),
}

impl SharedTarget {
    /// Replaces ids by addresses and names; `None` if the target has left.
    pub(super) fn from_router(
        target: Target,
        membership: &Membership,
        peer_table: Option<&PeerTable>,
    ) -> Option<Self> {
        Some(match target {
            Target::Replica(id) => Self::Replica(membership.addr_of(id)?),
            Target::Peer(id) => Self::Peer(Arc::clone(&peer_table?.get(id)?.name)),
        })
    }

    /// Replaces addresses and names by ids; `None` if this service does not know the target.
    pub(super) fn into_router(
        self,
        membership: &Membership,
        peer_table: Option<&PeerTable>,
    ) -> Option<Target> {
        Some(match self {
            Self::Replica(addr) => Target::Replica(membership.id_of(addr)?),
            Self::Peer(name) => Target::Peer(peer_table?.named(&name)?.id),
        })
    }
}
