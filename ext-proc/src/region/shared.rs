//! What one lock guards: the core, the links, and what the core's effects act on.
//!
//! Everything that the core wants done is done under the same lock, in the order in which it was decided: nothing of it
//! waits. Pools are locked from in here, and never the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use isotherm_router::region::{
    Effect, Event, Heartbeat, Incarnation, Members, Ping, RegionName, Regions, RegionsConfig,
    Stance,
};
use isotherm_router::{PeerId, PeerReport, Time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::adopt::Adoptions;
use super::links::{LinkKey, Links, broken};
use super::pools::{pool_of, reports};
use super::sibling::add_queues;
use super::status::{CertificateState, SharedCounts};
use super::store::Store;
use super::witness::Witnesses;
use crate::config::{PeerConfig, RegionConfig};
use crate::driver::{Clock, Fleet};
use crate::peering::{Link, LinkEvent, Said};

/// How long after this service its Envoy may start before its region counts as one without a gateway: otherwise, when
/// whole regions start, whoever is first adopts the replicas of all others for a while.
const GATEWAY_STARTS_WITHIN: Duration = Duration::from_secs(5);

/// This service among the regions.
#[derive(Debug)]
pub(super) struct Shared {
    fleet: Arc<Fleet>,
    core: Mutex<Core>,
    /// Rings when the core's next timeout came nearer than the timer task knows.
    alarm: Arc<Notify>,
    this: Weak<Self>,
}

/// What the lock guards.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) regions: Regions,
    pub(super) config: RegionConfig,
    pub(super) links: Links,
    pub(super) adoptions: Adoptions,
    pub(super) counts: SharedCounts,
    pub(super) certificate: CertificateState,
    /// Callers that were turned away since the start.
    pub(super) turned_away: u64,
    incarnation: Incarnation,
    witnesses: Witnesses,
    watched: BTreeMap<PeerId, Watching>,
    store: Store,
    /// Whether an Envoy is connected to this very service.
    own_gateway: bool,
    /// Until when the first one counts as connected: the two start together, in either order.
    gateway_expected_until: Option<Time>,
    /// What the core was told last.
    told: Told,
    /// The number of the last question to siblings.
    seq: u64,
    /// When this service was told of these siblings.
    siblings_since: Option<Time>,
}

#[derive(Debug)]
struct Told {
    leads: bool,
    gateway: bool,
    holds: BTreeSet<RegionName>,
    members: Option<Vec<Members>>,
}

/// A task that asks the replicas of a region.
#[derive(Debug)]
struct Watching(AbortHandle);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Shared {
    pub(super) fn new(
        fleet: Arc<Fleet>,
        config: RegionConfig,
        incarnation: Incarnation,
        regions: Regions,
        links: Links,
        adoptions: Adoptions,
        store: Store,
    ) -> Arc<Self> {
        let started = fleet.clock().now();
        Arc::new_cyclic(|this| Self {
            fleet,
            core: Mutex::new(Core {
                regions,
                config,
                links,
                adoptions,
                counts: SharedCounts::default(),
                certificate: CertificateState::default(),
                turned_away: 0,
                incarnation,
                witnesses: Witnesses::new(),
                watched: BTreeMap::new(),
                store,
                own_gateway: false,
                gateway_expected_until: Some(started.after(GATEWAY_STARTS_WITHIN)),
                told: Told {
                    leads: true,
                    gateway: false,
                    holds: BTreeSet::new(),
                    members: None,
                },
                seq: 0,
                siblings_since: None,
            }),
            alarm: Arc::new(Notify::new()),
            this: Weak::clone(this),
        })
    }

    pub(super) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    pub(super) fn clock(&self) -> Clock {
        self.fleet.clock()
    }

    /// Rings when the next timeout came nearer.
    pub(super) fn alarm(&self) -> Arc<Notify> {
        Arc::clone(&self.alarm)
    }

    /// Feeds the core an event.
    pub(super) fn handle(&self, event: Event) {
        self.drive(|core, now| core.regions.handle(now, event));
    }

    /// Makes time pass.
    pub(super) fn tick(&self) {
        self.drive(|core, now| core.regions.handle_timeout(now));
    }

    /// When to call [`Self::tick`] next.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.lock().regions.poll_timeout()
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
    pub(super) fn link(&self, Link { key, event }: Link<LinkKey>) {
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
                    LinkEvent::Said {
                        session,
                        said: Said::Record(record),
                    } if link.sibling.is_of(session) => {
                        let record = Arc::unwrap_or_clone(record);
                        core.regions.handle(now, Event::SiblingRecord { record });
                    }
                    LinkEvent::Down { .. } => link.sibling.link_down(),
                    LinkEvent::Said {
                        said: Said::Heartbeat(heartbeat),
                        ..
                    } => {
                        link.sibling.hear(now, heartbeat);
                        core.heed_siblings(now);
                    }
                    // Nothing else is answered to what is asked.
                    LinkEvent::Said { .. } => {}
                }
            }),
        }
    }

    /// Answers a peer.
    pub(super) fn answer_peer(&self, peer: PeerId, ping: &Ping) -> Vec<Said> {
        let mut pools = reports(&self.fleet.table());
        self.drive(|core, now| {
            let silence_max = core.config.silence_max();
            let siblings = core.links.siblings.iter();
            let said = siblings.flat_map(|link| link.sibling.reports(now, silence_max));
            add_queues(&mut pools, said);
            let answer = core.regions.answer(now, peer, ping, pools);
            answer.map_or_else(Vec::new, |answer| {
                let record = answer.record.map(Said::Record);
                std::iter::once(Said::Heartbeat(answer.heartbeat))
                    .chain(record)
                    .collect()
            })
        })
    }

    /// Answers a sibling: with what is this service's own.
    pub(super) fn answer_sibling(&self, ping: &Ping) -> Vec<Said> {
        let pools = reports(&self.fleet.table());
        let core = self.lock();
        let heartbeat = Said::Heartbeat(Heartbeat {
            session: ping.session,
            answers: ping.seq,
            version: env!("CARGO_PKG_VERSION").into(),
            stance: core.own_stance(),
            pools,
            views: Vec::new(),
        });
        let record = core.regions.own_record();
        let (has, held) = (ping.has, record.held());
        let newer = held.replicas > has.replicas || held.heirs > has.heirs;
        let record = newer.then(|| Said::Record(Arc::clone(record)));
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
            core.own_gateway = up;
            if up {
                core.gateway_expected_until = None;
            }
            core.heed_siblings(now);
        });
    }

    /// The replicas that are this region's own.
    pub(super) fn members(&self, pools: Vec<Members>) {
        self.drive(|core, now| {
            if core.told.members.as_ref() != Some(&pools) {
                core.told.members = Some(pools.clone());
                core.regions.handle(now, Event::Members { pools });
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

    /// Runs one step, and does what the core wants done then.
    pub(super) fn drive<T>(&self, step: impl FnOnce(&mut Core, Time) -> T) -> T {
        let mut core = self.lock();
        let before = core.regions.poll_timeout();
        let result = step(&mut core, self.clock().now());
        while let Some(effect) = core.regions.poll_effect() {
            self.carry_out(&mut core, effect);
        }
        let after = core.regions.poll_timeout();
        drop(core);
        if after.is_some_and(|after| before.is_none_or(|before| after < before)) {
            self.alarm.notify_one();
        }
        result
    }

    /// No pool sends anything to a peer before it is heard again.
    fn lost(&self, peer: PeerId) {
        for pool in self.fleet.table().pools() {
            pool.peer_lost(peer);
        }
    }

    fn carry_out(&self, core: &mut Core, effect: Effect) {
        match effect {
            Effect::Ping { peer, ping } => core.links.tell_peer(peer, &Said::Ping(ping)),
            Effect::Redial { peer } => core.links.redial(peer),
            Effect::Reported {
                peer,
                pools,
                as_of,
                round_trip,
            } => {
                let table = self.fleet.table();
                for pool in table.pools() {
                    let meant = |(model, _): &&(Arc<str>, PeerReport)| {
                        pool_of(&table, model).is_some_and(|meant| Arc::ptr_eq(meant, pool))
                    };
                    match pools.iter().find(meant) {
                        Some((_, report)) => pool.peer_reported(peer, *report, as_of, round_trip),
                        None => pool.peer_lost(peer),
                    }
                }
            }
            Effect::Lost { peer } => {
                tracing::warn!(region = core.name_of(peer), "region is not heard any more");
                self.lost(peer);
            }
            Effect::Watch { peer, addresses } => {
                let interval = core.config.heartbeat;
                let witnesses = core.witnesses.clone();
                let work = witnesses.ask(Weak::clone(&self.this), peer, addresses, interval);
                let task = tokio::spawn(work).abort_handle();
                core.watched.insert(peer, Watching(task));
            }
            Effect::Unwatch { peer } => drop(core.watched.remove(&peer)),
            Effect::Adopt { peer, pools } => {
                core.adoptions.adopt(peer, pools);
                let adopted = core.adoptions.count(peer);
                tracing::warn!(
                    region = core.name_of(peer),
                    adopted,
                    "region is dead: its replicas are adopted"
                );
            }
            Effect::Release { peer, why } => {
                tracing::warn!(
                    region = core.name_of(peer),
                    ?why,
                    "its replicas are given back"
                );
                core.adoptions.release(peer);
            }
            Effect::Store { record } => {
                let config = &core.config;
                let known = |region: &RegionName| {
                    let named = config.peers.iter().any(|peer| peer.name == region.as_str());
                    named || config.name == region.as_str()
                };
                core.store.keep(record, known);
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic under the lock is a bug in the core; the regions must go on.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Where this service stands by itself: siblings must not hear from it what it has from them.
    fn own_stance(&self) -> Stance {
        let held = self.regions.holds();
        Stance {
            incarnation: self.incarnation,
            gateway: self.own_gateway,
            holds: held.filter_map(|peer| self.region_of(peer)).collect(),
            ..Stance::default()
        }
    }

    fn ask_siblings(&mut self, now: Time) {
        let stance = self.own_stance();
        let has = self.regions.own_record().held();
        for link in &mut self.links.siblings {
            self.seq += 1;
            if let Some(ping) = link.sibling.ask(now, self.seq, has, &stance) {
                // A link that takes no question is one that gives no answer: silence tells.
                let _ = link.tell(&Said::Ping(ping));
            }
        }
    }

    /// Tells the core what siblings say, where that is news.
    fn heed_siblings(&mut self, now: Time) {
        let silence_max = self.config.silence_max();
        let siblings = || self.links.siblings.iter().map(|link| &link.sibling);
        let holds: BTreeSet<_> = siblings()
            .filter_map(|sibling| sibling.holds(now, silence_max))
            .flatten()
            .cloned()
            .collect();
        let expected = self.gateway_expected_until.is_some_and(|until| now < until);
        let gateway = self.own_gateway
            || expected
            || siblings().any(|sibling| sibling.gateway(now, silence_max));
        let leads = self.leads(now);
        if leads != self.told.leads {
            self.told.leads = leads;
            self.regions.handle(now, Event::Leads { leads });
        }
        if holds != self.told.holds {
            self.told.holds.clone_from(&holds);
            self.regions.handle(now, Event::Siblings { holds });
        }
        if gateway != self.told.gateway {
            self.told.gateway = gateway;
            self.regions.handle(now, Event::Gateway { up: gateway });
        }
    }

    /// Whether this service writes its region's record: of those that hear each other, the one with the smallest number.
    /// One that does not know its siblings yet leaves it to them until it would have heard them.
    fn leads(&self, now: Time) -> bool {
        let silence_max = self.config.silence_max();
        let siblings = self.links.siblings.iter();
        let heard: Vec<_> = siblings
            .map(|link| link.sibling.incarnation(now, silence_max))
            .collect();
        let known = heard.iter().all(Option::is_some)
            || self
                .siblings_since
                .is_none_or(|since| now.since(since) >= silence_max * 2);
        known
            && heard
                .into_iter()
                .flatten()
                .all(|other| self.incarnation < other)
    }

    fn region_of(&self, peer: PeerId) -> Option<RegionName> {
        let link = self.links.peers.get(&peer)?;
        Some(link.config.name.as_str().into())
    }

    fn name_of(&self, peer: PeerId) -> &str {
        let link = self.links.peers.get(&peer);
        link.map_or("?", |link| &link.config.name)
    }
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
        give_back_after: config.give_back_after,
        version: env!("CARGO_PKG_VERSION").into(),
        peers: peers.map(|(id, name)| (id, name.into())).collect(),
    }
}

/// What the core is to know of what happened to a peer's link.
fn peer_event(clock: Clock, peer: PeerId, event: LinkEvent) -> Option<Event> {
    Some(match event {
        LinkEvent::Up { session, .. } => Event::LinkUp { peer, session },
        LinkEvent::Down { why, began } => Event::LinkDown {
            peer,
            why: broken(&why)?,
            began: clock.time_of(began),
        },
        LinkEvent::Said { said, .. } => match said {
            Said::Heartbeat(heartbeat) => Event::Heartbeat { peer, heartbeat },
            Said::Record(record) => Event::Record {
                peer,
                record: Arc::unwrap_or_clone(record),
            },
            // A caller asks and tells; who answers does neither.
            Said::Ping(_) | Said::Placements(_) => return None,
        },
    })
}
