//! One service among the regions: everything that drives the core, behind one lock.
//!
//! Everything that the core wants done is done under the same lock, in the order in which it was decided: nothing of it
//! waits. Pools are locked from in here, and never the other way round.

use std::sync::{Arc, MutexGuard, Weak};

use isotherm_regions::{Event, Heartbeat, Incarnation, Ping, PoolReplicas, Regions, RegionsConfig};
use isotherm_router::{PeerId, Time};

use super::adoption::Adoptions;
use super::links::{LinkKey, Links, broken};
use super::pools::reports;
use super::sibling::add_queues;
use super::state::DriverState;
use super::store::RecordStore;
use crate::clock::Clock;
use crate::config::{PeerConfig, RegionConfig};
use crate::peering::{LinkEvent, Message};
use crate::pool::PoolRegistry;
use crate::sans_io::{DrivenCore, Driver};

/// This service among the regions.
#[derive(Debug)]
pub(super) struct RegionsDriver {
    pool_registry: Arc<PoolRegistry>,
    core: DrivenCore<DriverState>,
    this: Weak<Self>,
}

impl RegionsDriver {
    pub(super) fn new(
        pool_registry: Arc<PoolRegistry>,
        config: RegionConfig,
        incarnation: Incarnation,
        regions: Regions,
        links: Links,
        adoptions: Adoptions,
        store: RecordStore,
    ) -> Arc<Self> {
        let clock = pool_registry.clock();
        let state = DriverState::new(
            clock.now(),
            config,
            incarnation,
            regions,
            links,
            adoptions,
            store,
        );
        Arc::new_cyclic(|this| Self {
            pool_registry,
            core: DrivenCore::new(state, clock),
            this: Weak::clone(this),
        })
    }

    pub(super) fn pool_registry(&self) -> &Arc<PoolRegistry> {
        &self.pool_registry
    }

    pub(super) fn clock(&self) -> Clock {
        self.pool_registry.clock()
    }

    pub(super) fn weak(&self) -> Weak<Self> {
        Weak::clone(&self.this)
    }

    /// Feeds the core an event.
    pub(super) fn handle(&self, event: Event) {
        self.drive(|core, now| core.regions.handle(now, event));
    }

    /// Dials those that a configuration names, from now on.
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
            core.heed_siblings(now);
        });
    }

    /// Something happened to a link.
    pub(super) fn link(&self, key: LinkKey, event: LinkEvent) {
        match key {
            LinkKey::Peer(peer) => self.drive(|core, now| {
                let Some(link) = core.links.peers.get_mut(&peer) else {
                    return;
                };
                link.state.note(&link.config.name, &event);
                if let LinkEvent::Down { .. } = event {
                    // Nothing is sent there until it reports again, which a link that comes back at once does at once.
                    self.lost(peer);
                }
                if let Some(event) = peer_event(self.clock(), peer, event) {
                    core.regions.handle(now, event);
                }
            }),
            LinkKey::Sibling(address) => self.drive(|core, now| {
                let Some(link) = core.links.sibling(&address) else {
                    return;
                };
                link.state.note(&format!("sibling {address}"), &event);
                match event {
                    LinkEvent::Up { session, .. } => {
                        link.sibling.link_up(session);
                        core.ask_siblings(now);
                    }
                    LinkEvent::Message {
                        session,
                        message: Message::Record(record),
                    } if link.sibling.is_of(session) => {
                        let record = Arc::unwrap_or_clone(record);
                        core.regions.handle(now, Event::SiblingRecord { record });
                    }
                    LinkEvent::Down { .. } => link.sibling.link_down(),
                    LinkEvent::Message {
                        message: Message::Heartbeat(heartbeat),
                        ..
                    } => {
                        link.sibling.hear(now, heartbeat);
                        core.heed_siblings(now);
                    }
                    // Nothing else is answered to what is asked.
                    LinkEvent::Message { .. } => {}
                }
            }),
        }
    }

    /// Answers a peer.
    pub(super) fn answer_peer(&self, peer: PeerId, ping: &Ping) -> Vec<Message> {
        let mut pools = reports(&self.pool_registry.table());
        self.drive(|core, now| {
            let silence_max = core.config.silence_max();
            let siblings = core.links.siblings.iter();
            let said = siblings.flat_map(|link| link.sibling.reports(now, silence_max));
            add_queues(&mut pools, said);
            let answer = core.regions.reply(now, peer, ping, pools);
            answer.map_or_else(Vec::new, |answer| {
                let record = answer.record.map(Message::Record);
                std::iter::once(Message::Heartbeat(answer.heartbeat))
                    .chain(record)
                    .collect()
            })
        })
    }

    /// Answers a sibling: with what is this service's own.
    pub(super) fn answer_sibling(&self, ping: &Ping) -> Vec<Message> {
        let pools = reports(&self.pool_registry.table());
        let core = self.lock();
        let heartbeat = Message::Heartbeat(Heartbeat {
            session: ping.session,
            ping_seq: ping.seq,
            version: env!("CARGO_PKG_VERSION").into(),
            advertisement: core.own_stance(),
            pools,
            views: Vec::new(),
        });
        let record = core.regions.own_record();
        let (has, held) = (ping.record_version, record.record_version());
        let newer = held.replicas > has.replicas || held.successors > has.successors;
        let record = newer.then(|| Message::Record(Arc::clone(record)));
        std::iter::once(heartbeat).chain(record).collect()
    }

    /// Asks the siblings, and heeds their silence.
    pub(super) fn beat(&self) {
        self.drive(|core, now| {
            core.ask_siblings(now);
            core.heed_siblings(now);
        });
    }

    /// Whether an Envoy is connected to this very service.
    pub(super) fn own_gateway(&self, up: bool) {
        self.drive(|core, now| {
            core.gateway_is(up);
            core.heed_siblings(now);
        });
    }

    /// The replicas that are this region's own.
    pub(super) fn members(&self, pools: Vec<PoolReplicas>) {
        self.drive(|core, now| {
            if core.last_inputs.members.as_ref() != Some(&pools) {
                core.last_inputs.members = Some(pools.clone());
                core.regions.handle(now, Event::LocalPools { pools });
            }
        });
    }

    /// Gives everything back and cuts all links.
    pub(super) fn shut_down(&self) {
        self.handle(Event::Shutdown);
        let mut core = self.lock();
        core.links.clear();
        core.watched.clear();
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

/// What the core is to know of a configuration.
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

/// What the core is to know of what happened to a peer's link.
fn peer_event(clock: Clock, peer: PeerId, event: LinkEvent) -> Option<Event> {
    Some(match event {
        LinkEvent::Up { session, .. } => Event::LinkUp { peer, session },
        LinkEvent::Down {
            error,
            dial_started,
        } => Event::LinkDown {
            peer,
            failure: broken(&error)?,
            dial_started: clock.time_of(dial_started),
        },
        LinkEvent::Message { message, .. } => match message {
            Message::Heartbeat(heartbeat) => Event::Heartbeat { peer, heartbeat },
            Message::Record(record) => Event::Record {
                peer,
                record: Arc::unwrap_or_clone(record),
            },
            // A caller asks and tells; who answers does neither.
            Message::Ping(_) | Message::Placements(_) => return None,
        },
    })
}
