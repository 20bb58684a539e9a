//! A service: the real core, and a driver around it.

use std::sync::Arc;

use isotherm_regions::{Effect, Event, Incarnation, Ping, RegionRecord, Regions, RegionsConfig};
use isotherm_router::{PeerId, PeerReport};

use super::links::{LinkId, Message};
use super::{Due, INTERVAL, INTERVAL_NS, MS, Nanos, World};

pub struct Service {
    pub regions: Regions,
    /// Incarnation, unique over all services.
    pub life: u64,
    pub since: Nanos,
    /// The number of the newest watch over each other region.
    watches: Vec<u64>,
    timer: Nanos,
}

impl World {
    /// Starts a region's service, with what its disk holds.
    pub fn start(&mut self, at: usize) {
        if self.regions[at].service.is_some() {
            return;
        }
        self.next += 1;
        let life = self.next;
        let count = self.regions.len();
        let names = (0..count)
            .filter(|other| *other != at)
            .map(|other| (Self::id(at, other), format!("r{other}").as_str().into()));
        let config = RegionsConfig {
            name: self.regions[at].name.clone(),
            interval: INTERVAL,
            adopt: true,
            return_after: self.give_back,
            version: "test".into(),
            peers: names.collect(),
        };
        let disk: Vec<RegionRecord> = self.regions[at].disk.values().cloned().collect();
        let now = self.local(at, self.now);
        let regions = Regions::new(config, Incarnation(self.random.next()), disk, now);
        self.regions[at].service = Some(Service {
            regions,
            life,
            since: self.now,
            watches: vec![0; self.cut.len()],
            timer: Nanos::MAX,
        });
        self.regions[at].frozen = false;
        self.checks.started(at);
        let pools = self.regions[at].members.clone();
        self.call(at, Event::LocalPools(pools));
        let up = self.regions[at].gateway;
        self.call(at, Event::GatewayChanged(up));
        for other in 0..self.cut.len() {
            if other != at {
                self.dial(at, other);
            }
        }
    }

    /// Kills it.
    pub fn kill(&mut self, at: usize) {
        if self.regions[at].service.take().is_none() {
            return;
        }
        self.regions[at].frozen = false;
        let says_so = self.regions[at].host;
        self.cut_off(at, says_so);
        self.stop_dialling(at);
        self.checks.died(at);
    }

    /// Passes an event to a service and carries out its effects.
    pub fn call(&mut self, at: usize, event: Event) {
        let now = self.local(at, self.now);
        if let Some(service) = &mut self.regions[at].service {
            service.regions.handle(now, event);
        }
        self.effects(at);
    }

    pub fn timer(&mut self, at: usize, life: u64) {
        let now = self.local(at, self.now);
        let frozen = self.regions[at].frozen;
        match &mut self.regions[at].service {
            Some(service) if service.life == life => {
                service.timer = Nanos::MAX;
                if frozen {
                    return;
                }
                service.regions.handle_timeout(now);
            }
            _ => return,
        }
        self.effects(at);
    }

    /// Resumes a suspended service.
    pub fn wake(&mut self, at: usize) {
        self.regions[at].frozen = false;
        let now = self.local(at, self.now);
        if let Some(service) = &mut self.regions[at].service {
            service.regions.handle_timeout(now);
        }
        self.effects(at);
    }

    /// A ping came in.
    pub fn asked(&mut self, link: LinkId, at: usize, from: usize, ping: &Ping) {
        let now = self.local(at, self.now);
        // The report says when it was made: what becomes of it is checked where it is believed.
        let made = u32::try_from(self.now / MS).unwrap();
        let clock = PeerReport {
            queue: made,
            ..PeerReport::default()
        };
        let pools = vec![
            (Arc::from("clock"), clock),
            (Arc::from("m"), self.reports[at]),
        ];
        let Some(service) = &mut self.regions[at].service else {
            return;
        };
        let answer = service
            .regions
            .reply(now, Self::id(at, from), ping, pools)
            .expect("every region is known");
        self.effects(at);
        self.send(link, true, Message::Heartbeat(answer.heartbeat));
        if let Some(record) = answer.record {
            self.send(link, true, Message::Record(RegionRecord::clone(&record)));
        }
    }

    fn effects(&mut self, at: usize) {
        while let Some(service) = &mut self.regions[at].service {
            let Some(effect) = service.regions.poll_effect() else {
                break;
            };
            self.does(at, effect);
        }
        self.schedule(at);
    }

    fn schedule(&mut self, at: usize) {
        let Some(service) = &self.regions[at].service else {
            return;
        };
        let (life, timer) = (service.life, service.timer);
        let Some(due) = service.regions.poll_timeout() else {
            return;
        };
        let due = self.global(at, due).max(self.now);
        if due < timer || timer < self.now {
            if let Some(service) = &mut self.regions[at].service {
                service.timer = due;
            }
            self.at(due, Due::Timer { at, life });
        }
    }

    fn does(&mut self, at: usize, effect: Effect) {
        if let Some(outbox) = &mut self.outbox {
            outbox.push((at, effect.clone()));
        }
        match effect {
            Effect::Ping(peer, ping) => {
                let to = Self::peer(at, peer);
                let up = self.dials[at][to].up;
                if let Some(link) = up.filter(|link| Self::session(*link) == ping.session) {
                    self.send(link, false, Message::Ping(ping));
                }
            }
            Effect::Redial(peer) => self.redial(at, Self::peer(at, peer)),
            Effect::UpdatePeer {
                peer, pools, as_of, ..
            } => {
                let made = Nanos::from(pools[0].1.queue) * MS;
                let asked = self.global(at, as_of);
                self.checks
                    .reported(at, Self::peer(at, peer), asked, made, self.now);
            }
            Effect::MarkPeerLost(peer) => self.checks.lost(at, Self::peer(at, peer)),
            Effect::ProbeReplicas(peer, _) => {
                let of = Self::peer(at, peer);
                self.next += 1;
                let watch = self.next;
                self.watch(at, of, watch);
                self.probe(at, of, watch);
            }
            Effect::StopProbing(peer) => self.watch(at, Self::peer(at, peer), 0),
            Effect::Adopt(peer, _) => {
                let of = Self::peer(at, peer);
                self.note(format!("r{at} adopts r{of}"));
                self.checks.adopted(at, of, self.now);
            }
            Effect::Release(peer, why) => {
                let of = Self::peer(at, peer);
                self.note(format!("r{at} releases r{of}: {why:?}"));
                self.checks.released(at, of, why);
            }
            Effect::StoreRecord(record) => {
                let record = RegionRecord::clone(&record);
                self.regions[at].disk.insert(record.region.clone(), record);
            }
        }
    }

    fn watch(&mut self, at: usize, of: usize, watch: u64) {
        if let Some(service) = &mut self.regions[at].service {
            service.watches[of] = watch;
        }
    }

    fn watches(&self, at: usize, of: usize, watch: u64) -> bool {
        let service = self.regions[at].service.as_ref();
        service.is_some_and(|service| service.watches[of] == watch)
    }

    /// Asks another region's replicas.
    pub fn probe(&mut self, from: usize, of: usize, watch: u64) {
        if !self.watches(from, of, watch) {
            return;
        }
        let sent = self.now;
        let again = Due::Probe { from, of, watch };
        self.at(sent + INTERVAL_NS, again);
        if self.regions[from].frozen {
            return;
        }
        let alive = self.open(from, of)
            && self.regions[of].replicas
            && !(self.noisy && self.random.chance(1));
        let after = if alive {
            2 * self.delay[from][of]
        } else {
            3 * INTERVAL_NS
        };
        let due = Due::Witness {
            from,
            of,
            watch,
            sent,
            alive,
        };
        self.at(sent + after, due);
    }

    pub fn witness(&mut self, from: usize, of: usize, watch: u64, sent: Nanos, alive: bool) {
        if !self.watches(from, of, watch) || self.regions[from].frozen {
            return;
        }
        if alive && !(self.open(from, of) && self.regions[of].replicas) {
            let due = Due::Witness {
                from,
                of,
                watch,
                sent,
                alive: false,
            };
            self.at(sent + 3 * INTERVAL_NS, due);
            return;
        }
        let sent = self.local(from, sent);
        let peer = Self::id(from, of);
        self.call(
            from,
            Event::ReplicasProbed {
                peer,
                sent,
                any_answered: alive,
            },
        );
    }

    /// Returns the owners of the replicas that a service has adopted.
    pub fn held(&self, at: usize) -> Vec<usize> {
        let service = self.regions[at].service.as_ref();
        service.map_or_else(Vec::new, |service| {
            let held = service.regions.adopted_regions();
            held.map(|id: PeerId| Self::peer(at, id)).collect()
        })
    }
}
