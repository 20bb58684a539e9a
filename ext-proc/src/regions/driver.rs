//! Feeds the core across regions and carries out its effects.
//!
//! Effects are carried out under the core's lock, in the order of their decisions; none of them waits. This lock may be held
//! while a pool is locked, never the other way round.

use std::sync::{Arc, Weak};

use isotherm_regions::{Heartbeat, Leases, RegionName, StoredEntry, WriteResult};
use isotherm_router::{PeerId, Time};
use parking_lot::MutexGuard;
use tokio::sync::broadcast;

use super::heard::{HeardService, add_queues};
use super::links::LinkKey;
use super::pools::{pool_of, reports};
use super::scaling::{ReceivedShare, SHARES_MAX};
use super::state::DriverState;
use super::store::StoreCalls;
use crate::clock::Clock;
use crate::config::{PeerConfig, RegionConfig};
use crate::peering::{LinkEvent, LocalIdentity, Message};
use crate::pool::PoolRegistry;
use crate::sans_io::{DrivenCore, Driver};

#[derive(Debug)]
pub(super) struct RegionsDriver {
    pub(super) this: Weak<Self>,
    pub(super) identity: Arc<LocalIdentity>,
    pool_registry: Arc<PoolRegistry>,
    core: DrivenCore<DriverState>,
    pub(super) store: Option<Arc<StoreCalls>>,
    /// Shares of services of this region and of others: demand and numbers of replicas.
    pub(super) scaling: broadcast::Sender<ReceivedShare>,
}

impl RegionsDriver {
    pub(super) fn new(
        identity: Arc<LocalIdentity>,
        pool_registry: Arc<PoolRegistry>,
        state: DriverState,
        store: Option<StoreCalls>,
    ) -> Arc<Self> {
        let clock = pool_registry.clock();
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            identity,
            pool_registry,
            core: DrivenCore::new(state, clock),
            store: store.map(Arc::new),
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
        self.drive(|core, _| {
            core.config = config.clone();
            let heartbeat = config.heartbeat;
            core.links.apply(self, peers, &config.siblings, heartbeat);
        });
    }

    /// Handles an event of a link.
    pub(super) fn on_link_event(&self, key: &LinkKey, event: LinkEvent) {
        self.drive(|core, now| {
            let Some(link) = core.links.get_mut(key) else {
                return;
            };
            let silence_max = core.config.silence_max();
            let was_heard = link.heard.fresh(now, silence_max).is_some();
            let was_up = link.update(&event);
            match (key, event) {
                (key, Ok((sent, heartbeat))) => {
                    let heard = &mut link.heard;
                    let counts = heard.on_heartbeat(now, sent, heartbeat, silence_max);
                    if let (LinkKey::Peer(peer), true) = (key, counts) {
                        core.counters.heartbeats += 1;
                        // The link stayed up, and heartbeats came too late.
                        core.counters.regions_lost += u64::from(was_up && !was_heard);
                        self.update_peer(*peer, &link.heard);
                    }
                }
                (LinkKey::Peer(peer), Err(_)) => {
                    core.counters.regions_lost += u64::from(was_up);
                    self.mark_lost(*peer);
                }
                (LinkKey::Sibling(_), Err(_)) => {}
            }
        });
    }

    /// Stops forwarding to a peer until its next report.
    fn mark_lost(&self, peer: PeerId) {
        for pool in self.pool_registry.table().pools() {
            pool.peer_lost(peer);
        }
    }

    /// Passes the peer's report of each pool to that pool; a pool without a report loses the peer.
    fn update_peer(&self, peer: PeerId, heard: &HeardService) {
        let table = self.pool_registry.table();
        let pools = heard.heartbeat.pools.iter();
        let reports = pools.filter_map(|(model, report)| Some((pool_of(&table, model)?, *report)));
        let reports: Vec<_> = reports.collect();
        let as_of = heard.as_of.unwrap_or_default();
        let round_trip = heard.round_trip.unwrap_or_default();
        for pool in table.pools() {
            match reports.iter().find(|(of, _)| Arc::ptr_eq(of, pool)) {
                Some((_, report)) => pool.peer_reported(peer, *report, as_of, round_trip),
                None => pool.peer_lost(peer),
            }
        }
    }

    /// Replies to a ping: to a peer with the state of the region, to a sibling with that of this service alone.
    pub(super) fn reply(&self, is_sibling: bool) -> Message {
        let mut pools = reports(&self.pool_registry.table());
        let core = self.lock();
        let now = self.clock().now();
        if !is_sibling {
            let silence_max = core.config.silence_max();
            let siblings = core.links.siblings();
            let heard = siblings.filter_map(|link| link.heard.fresh(now, silence_max));
            add_queues(&mut pools, heard.flat_map(|heartbeat| &heartbeat.pools));
        }
        Message::Heartbeat(Heartbeat {
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
            let unusable = found.as_ref().map(|found| core.unusable(found));
            core.update_leases(now);
            if let Some(leases) = &mut core.leases {
                if let Some(unusable) = unusable {
                    leases.inputs_mut().refused = unusable;
                }
                leases.on_listed(now, sent, found);
            }
            core.update_members();
        });
    }

    /// Handles the result of a write.
    pub(super) fn on_written(&self, region: &RegionName, sent: Time, result: WriteResult) {
        self.drive(|core, now| {
            if let Some(leases) = &mut core.leases {
                leases.on_written(now, region, sent, result);
            }
        });
    }

    /// Gives every lease up and cuts all links.
    pub(super) fn shut_down(&self) {
        self.drive(|core, now| {
            if let Some(leases) = &mut core.leases {
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
        let leases = state.leases.as_ref();
        leases.map(Leases::poll_timeout)
    }

    fn handle_timeout(state: &mut DriverState, now: Time) {
        if let Some(leases) = &mut state.leases {
            leases.handle_timeout(now);
        }
    }

    fn take_effects(&self, state: &mut DriverState) {
        let now = self.clock().now();
        state.update_leases(now);
        // The pools drop a replica before the store may learn that this region gives its lease up.
        state.sync_leased();
        let (Some(leases), Some(store)) = (&mut state.leases, &self.store) else {
            return;
        };
        while let Some(effect) = leases.poll_effect() {
            Arc::clone(store).start(self.this.clone(), now, effect);
        }
    }

    fn finish(&self, (): ()) {}
}
