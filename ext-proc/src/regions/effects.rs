//! The effects of the core.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::{Effect, RegionName};
use isotherm_router::{PeerId, PeerReport, Time};
use tokio::task::JoinSet;

use super::driver::RegionsDriver;
use super::pools::pool_of;
use super::state::DriverState;
use crate::peering::Message;
use crate::pool::Pool;

impl RegionsDriver {
    /// Stops forwarding to a peer until its next report.
    pub(super) fn mark_lost(&self, peer: PeerId) {
        for pool in self.pool_registry().table().pools() {
            pool.peer_lost(peer);
        }
    }

    /// Hands each pool the peer's report of it; a pool without a report loses the peer.
    fn update_peer(
        &self,
        peer: PeerId,
        pools: &[(Arc<str>, PeerReport)],
        as_of: Time,
        round_trip: Duration,
    ) {
        let table = self.pool_registry().table();
        let reports: Vec<(&Arc<Pool>, PeerReport)> = pools
            .iter()
            .filter_map(|(model, report)| Some((pool_of(&table, model)?, *report)))
            .collect();
        for pool in table.pools() {
            match reports.iter().find(|(of, _)| Arc::ptr_eq(of, pool)) {
                Some((_, report)) => pool.peer_reported(peer, *report, as_of, round_trip),
                None => pool.peer_lost(peer),
            }
        }
    }

    pub(super) fn carry_out(&self, core: &mut DriverState, effect: Effect) {
        match effect {
            Effect::Ping(peer, ping) => core.links.send_to_peer(peer, &Message::Ping(ping)),
            Effect::Redial(peer) => core.links.redial(peer),
            Effect::UpdatePeer {
                peer,
                pools,
                as_of,
                round_trip,
            } => self.update_peer(peer, &pools, as_of, round_trip),
            Effect::MarkPeerLost(peer) => {
                tracing::warn!(
                    region = core.name_of(peer),
                    "region lost: its heartbeats have stopped"
                );
                self.mark_lost(peer);
            }
            Effect::ProbeReplicas(peer, mut addresses) => {
                retain_allowed(core, peer, &mut addresses);
                let interval = core.config.heartbeat;
                let prober = core.prober.clone();
                let mut task = JoinSet::new();
                task.spawn(prober.run(self.this.clone(), peer, addresses, interval));
                core.probes.insert(peer, task);
            }
            Effect::StopProbing(peer) => drop(core.probes.remove(&peer)),
            Effect::Adopt(peer, mut pools) => {
                for pool in &mut pools {
                    retain_allowed(core, peer, &mut pool.replicas);
                }
                core.adoptions.adopt(peer, pools);
                let adopted = core.adoptions.count(peer);
                tracing::warn!(
                    region = core.name_of(peer),
                    adopted,
                    "region is dead: adopted its replicas"
                );
            }
            Effect::Release(peer, reason) => {
                tracing::warn!(
                    region = core.name_of(peer),
                    ?reason,
                    "released adopted replicas"
                );
                core.adoptions.release(peer);
            }
            Effect::StoreRecord(record) => {
                let config = &core.config;
                let known = |region: &RegionName| {
                    let named = config.peers.iter().any(|peer| peer.name == region.as_str());
                    named || config.name == region.as_str()
                };
                core.store.insert(record, known);
            }
        }
    }
}

/// Removes the addresses outside the networks that the configuration gives to a peer, and counts them. A peer may be in
/// foreign hands, and its list would make this service probe, and send prompts to, any address.
fn retain_allowed(core: &mut DriverState, peer: PeerId, addresses: &mut Vec<Arc<str>>) {
    let name = core.name_of(peer);
    let configured = core.config.peers.iter().find(|peer| peer.name == *name);
    let networks = configured.map_or(&[][..], |peer| &peer.replicas);
    let is_allowed = |address: &Arc<str>| {
        let address = address.parse::<SocketAddr>();
        address.is_ok_and(|address| networks.iter().any(|net| net.contains(&address.ip())))
    };
    let told = addresses.len();
    addresses.retain(is_allowed);
    let rejected = told - addresses.len();
    if rejected > 0 {
        tracing::warn!(region = %name, rejected, "a region names replicas outside its networks (`region.peers[].replicas`)");
        core.addresses_rejected += rejected as u64;
    }
}
