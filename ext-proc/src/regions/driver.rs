//! Feeds the core across regions and carries out its effects.
//!
//! Effects are carried out under the core's lock, in the order of their decisions; none of them waits. This lock may be held
//! while a pool is locked, never the other way round.

use std::sync::{Arc, Weak};

use isotherm_regions::{Event, Heartbeat, Ping, PoolReplicas, RegionsConfig};
use isotherm_router::{PeerId, Time};
use parking_lot::MutexGuard;
use tokio::sync::broadcast;

use super::links::{LinkKey, link_failure};
use super::pools::reports;
use super::scaling::{ReceivedShare, SHARES_MAX};
use super::sibling::add_queues;
use super::state::DriverState;
use crate::clock::Clock;
use crate::config::{PeerConfig, RegionConfig};
use crate::peering::{LinkEvent, Message};
use crate::pool::PoolRegistry;
use crate::sans_io::{DrivenCore, Driver};

#[derive(Debug)]
pub(super) struct RegionsDriver {
    pool_registry: Arc<PoolRegistry>,
    core: DrivenCore<DriverState>,
    /// Shares of services of this region and of others: demand and numbers of replicas.
    pub(super) scaling: broadcast::Sender<ReceivedShare>,
    pub(super) this: Weak<Self>,
}

impl RegionsDriver {
    pub(super) fn new(pool_registry: Arc<PoolRegistry>, state: DriverState) -> Arc<Self> {
        let clock = pool_registry.clock();
        Arc::new_cyclic(|this| Self {
            pool_registry,
            core: DrivenCore::new(state, clock),
            scaling: broadcast::Sender::new(SHARES_MAX),
            this: Weak::clone(this),
        })
    }

    pub(super) fn pool_registry(&self) -> &Arc<PoolRegistry> {
        &self.pool_registry
    }

    pub(super) fn clock(&self) -> Clock {
        self.pool_registry.clock()
    }

    pub(super) fn handle(&self, event: Event) {
        self.drive(|core, now| core.regions.handle(now, event));
    }

    /// Applies a configuration: dials its peers and siblings, and no others.
    pub(super) fn apply(&self, config: &RegionConfig, peers: &[(PeerId, PeerConfig)]) {
        self.drive(|core, now| {
            let before = core.links.siblings.iter().map(|link| &link.address);
            if !before.eq(&config.siblings) {
                core.siblings_since = Some(now);
            }
            core.config = config.clone();
            let heartbeat = config.heartbeat;
            core.links.apply(peers, &config.siblings, heartbeat);
            let known = peers.iter().map(|(id, peer)| (*id, peer.name.as_str()));
            let config = regions_config(config, known);
            core.regions.handle(now, Event::Reconfigured(config));
            core.apply_sibling_state(now);
        });
    }

    pub(super) fn on_link_event(&self, key: LinkKey, event: LinkEvent) {
        match key {
            LinkKey::Peer(peer) => self.drive(|core, now| {
                let Some(link) = core.links.peers.get_mut(&peer) else {
                    return;
                };
                link.state.update(&link.config.name, &event);
                if let LinkEvent::Down { .. } = event {
                    // Forwarding pauses until the next report, which a link that comes back brings at once.
                    self.mark_lost(peer);
                }
                if let Some(event) = peer_event(self.clock(), peer, event) {
                    core.regions.handle(now, event);
                }
            }),
            LinkKey::Sibling(address) => self.drive(|core, now| {
                let Some(link) = core.links.sibling(&address) else {
                    return;
                };
                link.state.update(&format!("sibling {address}"), &event);
                match event {
                    LinkEvent::Up { session, .. } => {
                        link.sibling.on_link_up(session);
                        core.ping_siblings(now);
                    }
                    LinkEvent::Message {
                        session,
                        message: Message::Record(record),
                    } if link.sibling.is_current(session) => {
                        let record = Arc::unwrap_or_clone(record);
                        core.regions.handle(now, Event::SiblingRecord(record));
                    }
                    LinkEvent::Down { .. } => link.sibling.on_link_down(),
                    LinkEvent::Message {
                        message: Message::Heartbeat(heartbeat),
                        ..
                    } => {
                        link.sibling.on_heartbeat(now, heartbeat);
                        core.apply_sibling_state(now);
                    }
                    // A sibling sends no other message in reply to a ping.
                    LinkEvent::Message { .. } => {}
                }
            }),
        }
    }

    pub(super) fn reply_to_peer(&self, peer: PeerId, ping: &Ping) -> Vec<Message> {
        let mut pools = reports(&self.pool_registry.table());
        self.drive(|core, now| {
            let silence_max = core.config.silence_max();
            let siblings = core.links.siblings.iter();
            let sibling_reports = siblings.flat_map(|link| link.sibling.reports(now, silence_max));
            add_queues(&mut pools, sibling_reports);
            let reply = core.regions.reply(now, peer, ping, pools);
            reply.map_or_else(Vec::new, |reply| {
                let record = reply.record.map(Message::Record);
                std::iter::once(Message::Heartbeat(reply.heartbeat))
                    .chain(record)
                    .collect()
            })
        })
    }

    /// Replies to a ping of a sibling with this service's own state.
    pub(super) fn reply_to_sibling(&self, ping: &Ping) -> Vec<Message> {
        let pools = reports(&self.pool_registry.table());
        let core = self.lock();
        let heartbeat = Message::Heartbeat(Heartbeat {
            session: ping.session,
            ping_seq: ping.seq,
            version: env!("CARGO_PKG_VERSION").into(),
            advertisement: core.own_advertisement(),
            pools,
            views: Vec::new(),
        });
        let record = core.regions.own_record();
        let (known, own) = (ping.record_version, record.record_version());
        let is_newer = own.replicas > known.replicas || own.successors > known.successors;
        let record = is_newer.then(|| Message::Record(Arc::clone(record)));
        std::iter::once(heartbeat).chain(record).collect()
    }

    /// Pings the siblings, and applies their silence.
    pub(super) fn ping_siblings(&self) {
        self.drive(|core, now| {
            core.ping_siblings(now);
            core.apply_sibling_state(now);
        });
    }

    /// Records whether an Envoy is connected to this service.
    pub(super) fn set_gateway(&self, is_connected: bool) {
        self.drive(|core, now| {
            core.set_gateway(is_connected);
            core.apply_sibling_state(now);
        });
    }

    /// Records whether all siblings are known. Until then this service leaves the region's record to them for a while.
    pub(super) fn set_siblings_known(&self, are_known: bool) {
        self.drive(|core, now| {
            if core.are_siblings_known != are_known {
                core.are_siblings_known = are_known;
                core.siblings_since = Some(now);
                core.apply_sibling_state(now);
            }
        });
    }

    /// Passes this region's own replicas to the core when they have changed.
    pub(super) fn set_local_pools(&self, pools: Vec<PoolReplicas>) {
        self.drive(|core, now| {
            if core.last_inputs.pools.as_ref() != Some(&pools) {
                core.last_inputs.pools = Some(pools.clone());
                core.regions.handle(now, Event::LocalPools(pools));
            }
        });
    }

    /// Releases adopted replicas and cuts all links.
    pub(super) fn shut_down(&self) {
        self.handle(Event::Shutdown);
        let mut core = self.lock();
        core.links.clear();
        core.probes.clear();
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
        state.regions.poll_timeout()
    }

    fn handle_timeout(state: &mut DriverState, now: Time) {
        state.regions.handle_timeout(now);
    }

    fn take_effects(&self, state: &mut DriverState) {
        while let Some(effect) = state.regions.poll_effect() {
            self.carry_out(state, effect);
        }
    }

    fn finish(&self, (): ()) {}
}

pub(super) fn regions_config<'a>(
    config: &RegionConfig,
    peers: impl Iterator<Item = (PeerId, &'a str)>,
) -> RegionsConfig {
    RegionsConfig {
        name: config.name.as_str().into(),
        interval: config.heartbeat,
        adopt: config.adopt,
        return_after: config.give_back_after,
        version: env!("CARGO_PKG_VERSION").into(),
        peers: peers.map(|(id, name)| (id, name.into())).collect(),
    }
}

/// Converts an event of a peer's link for the core.
fn peer_event(clock: Clock, peer: PeerId, event: LinkEvent) -> Option<Event> {
    Some(match event {
        LinkEvent::Up { session, .. } => Event::LinkUp(peer, session),
        LinkEvent::Down {
            error,
            dial_started,
        } => Event::LinkDown {
            peer,
            failure: link_failure(&error)?,
            dial_started: clock.time_of(dial_started),
        },
        LinkEvent::Message { message, .. } => match message {
            Message::Heartbeat(heartbeat) => Event::Heartbeat(peer, heartbeat),
            Message::Record(record) => Event::Record(peer, Arc::unwrap_or_clone(record)),
            // The callee of a link sends neither pings nor placements.
            Message::Ping(_) | Message::Placements(_) | Message::Scaling(_) => return None,
        },
    })
}
