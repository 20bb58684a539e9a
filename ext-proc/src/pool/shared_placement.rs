//! Placements by the names that every service of a region knows: addresses of replicas, names of regions.
//!
//! The routing core knows both by identities of its own, which mean nothing to another service.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_fingerprint::BlockHash;
use isotherm_router::{Placement, Target};

use super::membership::Membership;
use super::peers::PeerTable;

/// A placement on its way between two services of one region: who was sent a prompt, and what of it was new.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedPlacement {
    /// Who was sent it.
    pub target: SharedTarget,
    /// The last block that the target was known to have before; `None` where the prompt was new from its beginning.
    pub parent: Option<BlockHash>,
    /// The new part of the prompt's chain.
    pub blocks: Box<[BlockHash]>,
}

/// Who was sent a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedTarget {
    /// A replica.
    Replica(SocketAddr),
    /// Another region.
    Peer(Arc<str>),
}

impl SharedPlacement {
    /// `None` where the target has left.
    pub(crate) fn name(
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
        })
    }

    /// `None` where the target is unknown here.
    pub(crate) fn resolve(
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
        })
    }
}
