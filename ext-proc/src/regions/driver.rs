//! Feeds the core across regions and carries out its effects.
//!
//! Effects are carried out under the core's lock, in the order of their decisions; none of them waits. This lock may be held
//! while a pool is locked, never the other way round.

use std::sync::Arc;

use isotherm_regions::{Event, Heartbeat, RegionName, RegionsConfig, StoredEntry, WriteResult};
use isotherm_router::{PeerId, Time};
use parking_lot::MutexGuard;
use tokio::sync::broadcast;

use super::links::LinkKey;
use super::pools::reports;
use super::scaling::{ReceivedShare, SHARES_MAX};
use super::sibling::add_queues;
use super::state::DriverState;
use crate::clock::Clock;
use crate::config::{PeerConfig, RegionConfig};
use crate::peering::{LinkError, LinkEvent, Message};
use crate::pool::PoolRegistry;
use crate::sans_io::{DrivenCore, Driver};

#[derive(Debug)]
pub(super) struct RegionsDriver {
    pool_registry: Arc<PoolRegistry>,
    core: DrivenCore<DriverState>,
    /// Shares of services of this region and of others: demand and numbers of replicas.
    pub(super) scaling: broadcast::Sender<ReceivedShare>,
}

impl RegionsDriver {
    pub(super) fn new(pool_registry: Arc<PoolRegistry>, state: DriverState) -> Arc<Self> {
        let clock = pool_registry.clock();
        Arc::new(Self {
            pool_registry,
            core: DrivenCore::new(state, clock),
            scaling: broadcast::Sender::new(SHARES_MAX),
        })
    }

    pub(super) fn pool_registry(&self) -> &Arc<PoolRegistry> {
        &self.pool_registry
    }

    pub(super) fn clock(&self) -> Clock {
        self.pool_registry.clock()
    }

    /// Applies a configuration: calls its peers and siblings, and no others.
    pub(super) fn apply(&self, config: &RegionConfig, peers: &[(PeerId, PeerConfig)]) {
        self.drive(|core, now| {
            core.config = config.clone();
            let heartbeat = config.heartbeat;
            core.links.apply(peers, &config.siblings, heartbeat);
            if let Some((leases, _)) = &mut core.leases {
                leases.set_give_back_after(config.give_back_after);
            }
            let config = regions_config(config, peers);
            core.regions.handle(now, Event::Reconfigured(config));
        });
    }

    pub(super) fn on_link_event(&self, key: LinkKey, event: LinkEvent) {
        match key {
            LinkKey::Peer(peer) => self.drive(|core, now| {
                let Some(link) = core.links.peers.get_mut(&peer) else {
                    return;
                };
                link.state.update(&link.config.name, &event);
                let event = match event {
                    LinkEvent::Heartbeat(ping, heartbeat) => {
                        Event::Heartbeat(peer, ping, heartbeat)
                    }
                    LinkEvent::Down { error } => {
                        // Forwarding pauses until the next report, which a link that comes back brings at once.
                        self.mark_lost(peer);
                        let is_refused = matches!(error, LinkError::Refused(_));
                        Event::LinkDown { peer, is_refused }
                    }
                };
                core.regions.handle(now, event);
            }),
            LinkKey::Sibling(address) => self.drive(|core, now| {
                let Some(link) = core.links.sibling(&address) else {
                    return;
                };
                link.state.update(&format!("sibling {address}"), &event);
                if let LinkEvent::Heartbeat(ping, heartbeat) = event {
                    link.sibling.on_heartbeat(now, ping, heartbeat);
                }
            }),
        }
    }

    /// Replies to a ping: to a peer with the state of the region, to a sibling with that of this service alone.
    pub(super) fn reply(&self, nonce: u64, is_sibling: bool) -> Message {
        let mut pools = reports(&self.pool_registry.table());
        let core = self.lock();
        let now = self.clock().now();
        if !is_sibling {
            let silence_max = core.config.silence_max();
            let siblings = core.links.siblings.iter();
            let reports = siblings.flat_map(|link| link.sibling.reports(now, silence_max));
            add_queues(&mut pools, reports);
        }
        Message::Heartbeat(Heartbeat {
            nonce,
            version: env!("CARGO_PKG_VERSION").into(),
            has_gateway: match is_sibling {
                true => core.own_gateway,
                false => core.has_gateway(now),
            },
            pools,
        })
    }

    /// Handles the answer to a list of the store.
    pub(super) fn on_listed(&self, sent: Time, found: Option<Vec<StoredEntry>>) {
        self.drive(|core, now| {
            if let Some(found) = &found {
                core.refuse_unusable(found);
            }
            core.update_leases(now);
            if let Some((leases, _)) = &mut core.leases {
                leases.on_listed(now, sent, found);
            }
            core.update_members();
        });
    }

    /// Handles the result of a write.
    pub(super) fn on_written(&self, region: &RegionName, sent: Time, result: WriteResult) {
        self.drive(|core, now| {
            if let Some((leases, _)) = &mut core.leases {
                leases.on_written(now, region, sent, result);
            }
        });
    }

    /// Gives every lease up and cuts all links.
    pub(super) fn shut_down(&self) {
        self.drive(|core, now| {
            if let Some((leases, _)) = &mut core.leases {
                leases.shut_down(now);
            }
        });
        self.lock().links.clear();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DriverState> {
        self.core.lock()
    }
}

impl Driver for RegionsDriver {
    type Core = DriverState;
    type Deferred = ();

    fn driven_core(&self) -> &DrivenCore<DriverState> {
        &self.core
    }

    fn poll_timeout(state: &DriverState) -> Option<Time> {
        let regions = state.regions.poll_timeout();
        let leases = state.leases.as_ref();
        let leases = leases.map(|(leases, _)| leases.poll_timeout());
        regions.into_iter().chain(leases).min()
    }

    fn handle_timeout(state: &mut DriverState, now: Time) {
        state.regions.handle_timeout(now);
        if let Some((leases, _)) = &mut state.leases {
            leases.handle_timeout(now);
        }
    }

    fn take_effects(&self, state: &mut DriverState) {
        state.update_leases(self.clock().now());
        while let Some(effect) = state.regions.poll_effect() {
            self.carry_out(state, effect);
        }
        // The pools drop a replica before the store may learn that this region gives its lease up.
        state.sync_leased();
        if let Some((leases, calls)) = &mut state.leases {
            while let Some(effect) = leases.poll_effect() {
                // Without a receiver the service is stopping.
                let _ = calls.send(effect);
            }
        }
    }

    fn finish(&self, (): ()) {}
}

pub(super) fn regions_config(
    config: &RegionConfig,
    peers: &[(PeerId, PeerConfig)],
) -> RegionsConfig {
    let peers = peers
        .iter()
        .map(|(id, peer)| (*id, peer.name.as_str().into()));
    RegionsConfig {
        interval: config.heartbeat,
        peers: peers.collect(),
    }
}
