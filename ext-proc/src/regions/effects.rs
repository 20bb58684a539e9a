//! What the core wants done.

use std::sync::Arc;

use isotherm_regions::{Effect, RegionName};
use isotherm_router::{PeerId, PeerReport};

use super::driver::RegionsDriver;
use super::pools::pool_of;
use super::state::{DriverState, ProbeTask};
use crate::peering::Message;
use crate::pool::Pool;

impl RegionsDriver {
    /// No pool sends anything to a peer before it is heard again.
    pub(super) fn lost(&self, peer: PeerId) {
        for pool in self.pool_registry().table().pools() {
            pool.peer_lost(peer);
        }
    }

    pub(super) fn carry_out(&self, core: &mut DriverState, effect: Effect) {
        match effect {
            Effect::Ping { peer, ping } => core.links.tell_peer(peer, &Message::Ping(ping)),
            Effect::Redial { peer } => core.links.redial(peer),
            Effect::UpdatePeer {
                peer,
                pools,
                as_of,
                round_trip,
            } => {
                let table = self.pool_registry().table();
                let said: Vec<(&Arc<Pool>, PeerReport)> = pools
                    .iter()
                    .filter_map(|(model, report)| Some((pool_of(&table, model)?, *report)))
                    .collect();
                for pool in table.pools() {
                    match said.iter().find(|(meant, _)| Arc::ptr_eq(meant, pool)) {
                        Some((_, report)) => pool.peer_reported(peer, *report, as_of, round_trip),
                        None => pool.peer_lost(peer),
                    }
                }
            }
            Effect::MarkPeerLost { peer } => {
                tracing::warn!(region = core.name_of(peer), "region is not heard any more");
                self.lost(peer);
            }
            Effect::ProbeReplicas { peer, addresses } => {
                let interval = core.config.heartbeat;
                let witnesses = core.witnesses.clone();
                let work = witnesses.ask(self.weak(), peer, addresses, interval);
                let task = tokio::spawn(work).abort_handle();
                core.watched.insert(peer, ProbeTask(task));
            }
            Effect::StopProbing { peer } => drop(core.watched.remove(&peer)),
            Effect::Adopt { peer, pools } => {
                core.adoptions.adopt(peer, pools);
                let adopted = core.adoptions.count(peer);
                tracing::warn!(
                    region = core.name_of(peer),
                    adopted,
                    "region is dead: its replicas are adopted"
                );
            }
            Effect::Release { peer, reason: why } => {
                tracing::warn!(
                    region = core.name_of(peer),
                    ?why,
                    "its replicas are given back"
                );
                core.adoptions.release(peer);
            }
            Effect::StoreRecord { record } => {
                let config = &core.config;
                let known = |region: &RegionName| {
                    let named = config.peers.iter().any(|peer| peer.name == region.as_str());
                    named || config.name == region.as_str()
                };
                core.store.keep(record, known);
            }
        }
    }
}
