//! Carries out the effects of the core across regions.

use std::sync::Arc;
use std::time::Duration;

use isotherm_regions::Effect;
use isotherm_router::{PeerId, PeerReport, Time};

use super::driver::RegionsDriver;
use super::pools::pool_of;
use super::state::DriverState;
use crate::pool::Pool;

impl RegionsDriver {
    /// Stops forwarding to a peer until its next report.
    pub(super) fn mark_lost(&self, peer: PeerId) {
        for pool in self.pool_registry().table().pools() {
            pool.peer_lost(peer);
        }
    }

    /// Passes the peer's report of each pool to that pool; a pool without a report loses the peer.
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
        }
    }
}
