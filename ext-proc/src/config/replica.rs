//! Replicas in the configuration: an address, or a section with an address and a role.

use std::net::SocketAddr;

use isotherm_router::Role;
use strum::VariantArray;

use super::kind::{Kind, choice, required, text_or_section};
use super::section::section;
use super::text::socket_address;

section! {
    /// A replica at a fixed address.
    pub struct StaticReplica {
        /// The address.
        address as "address": SocketAddr = SocketAddr::from(([0, 0, 0, 0], 0)), required(socket_address());
        /// The part of a request that the replica serves. With a `prefill` replica in the pool, requests go to `decode` and `both` replicas, and `prefill` replicas compute the long prompts for them: `x-prefiller-host-port` tells llm-d's sidecar.
        role as "role": Role = Role::Both, choice(Role::VARIANTS.iter().map(|role| (role.as_ref(), *role)));
    }
}

impl From<SocketAddr> for StaticReplica {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            role: Role::Both,
        }
    }
}

/// A replica: its address alone, or a section.
pub(super) fn static_replica() -> Kind<StaticReplica> {
    text_or_section(socket_address())
}
