//! Placements in terms that every service of a region knows: addresses of replicas and names of regions.
//!
//! The router identifies both by ids that mean nothing to another service.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_router::{Placement, Target, TenantCharge};

use super::membership::Membership;
use super::peer_table::PeerTable;

/// A placement that a service shares with its siblings: the target of a prompt, and the part of the prompt that is new
/// to the target.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedPlacement {
    /// Target of the prompt.
    pub target: SharedTarget,
    /// Last block that the target had before; `None` if the whole prompt is new.
    pub parent: Option<BlockHash>,
    /// Blocks that are new to the target.
    pub blocks: Box<[BlockHash]>,
    /// Prompt tokens that the target has to compute, if the sender told them.
    pub uncached_tokens: Option<u32>,
    /// Change of the tenant's account, in a pool with fairness between tenants.
    pub charge: Option<TenantCharge>,
}

/// The target of a shared placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedTarget {
    /// A replica.
    Replica(SocketAddr),
    /// Another region.
    Peer(Arc<str>),
}

impl SharedPlacement {
    /// Replaces ids by addresses and names; `None` if the target has left.
    pub(crate) fn from_router(
        placement: Placement,
        membership: &Membership,
        peer_table: Option<&PeerTable>,
    ) -> Option<Self> {
        let target = match placement.target {
            Target::Replica(id) => SharedTarget::Replica(membership.addr_of(id)?),
            Target::Peer(id) => SharedTarget::Peer(Arc::clone(&peer_table?.get(id)?.name)),
        };
        Some(Self {
            target,
            parent: placement.parent,
            blocks: placement.blocks,
            uncached_tokens: placement.uncached_tokens,
            charge: placement.charge,
        })
    }

    /// Replaces addresses and names by ids; `None` if this service does not know the target.
    pub(crate) fn into_router(
        self,
        membership: &Membership,
        peer_table: Option<&PeerTable>,
    ) -> Option<Placement> {
        let target = match self.target {
            SharedTarget::Replica(addr) => Target::Replica(membership.id_of(addr)?),
            SharedTarget::Peer(name) => Target::Peer(peer_table?.named(&name)?.id),
        };
        Some(Placement {
            target,
            parent: self.parent,
            blocks: self.blocks,
            uncached_tokens: self.uncached_tokens,
            charge: self.charge,
        })
    }
}
