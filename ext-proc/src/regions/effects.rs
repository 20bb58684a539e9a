//! The effects of the core.

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
            Effect::ProbeReplicas(peer, addresses) => {
                let interval = core.config.heartbeat;
                let prober = core.prober.clone();
                let mut task = JoinSet::new();
                task.spawn(prober.run(self.this.clone(), peer, addresses, interval));
                core.probes.insert(peer, task);
            }
            Effect::StopProbing(peer) => drop(core.probes.remove(&peer)),
            Effect::Adopt(peer, pools) => {
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
