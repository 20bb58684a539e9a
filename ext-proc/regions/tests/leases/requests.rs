//! Requests in regions that die, are partitioned and take each other's replicas: each gets an answer or a reason, none is
//! forwarded twice, and none returns to a region that returned it.
//!
//! The regions run in [`World`], and each has the real `Router` as its pool. Envoy is simulated as it is configured: it goes on
//! without its service, and a forwarded request that breaks enters its own region again.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_router::{
    Effect, End, Event, PeerId, Push, ReplicaId, RequestId, Role, Router, RouterConfig, Scope,
    ServedBy, Time,
};

use super::random::Random;
use super::support;
use super::world::{MS, Nanos, World};

const STEP: Nanos = 5 * MS;
/// Time until Envoy notices a dead connection to another region.
const KEEPALIVE: Nanos = 1_500 * MS;
/// Replicas of a region, and the requests that each takes at once.
const REPLICAS: usize = 2;
const SLOTS: u32 = 2;
/// Longer than a request waits in a queue.
const WAIT_MAX: Nanos = 45_000 * MS;

/// Ends of requests.
#[derive(Debug, Default)]
pub struct Ends {
    pub served: u64,
    /// The home region said why it serves the request not.
    pub refused: u64,
    /// The client's own Envoy died.
    pub broken: u64,
    pub forwarded: u64,
    pub returned: u64,
    /// Decisions for replicas of another region.
    pub leased: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// A service decides.
    Deciding {
        region: usize,
    },
    /// A replica works, by the decision of a service, or of an Envoy alone.
    Working {
        gateway: usize,
        done: Nanos,
    },
    Travelling {
        to: usize,
        arrives: Nanos,
    },
    Returning {
        from: usize,
        arrives: Nanos,
    },
}

#[derive(Debug)]
struct Journey {
    home: usize,
    session: u64,
    tried: Vec<usize>,
    stage: Stage,
}

struct Pool {
    life: u64,
    router: Router,
    /// Owner of each replica.
    replicas: BTreeMap<ReplicaId, usize>,
    leased: BTreeSet<usize>,
    is_suspended: bool,
    /// Requests of the router, by id: the journey, and the region that got it.
    requests: BTreeMap<u64, (u64, Option<usize>)>,
}

pub struct Traffic {
    pub world: World,
    pools: Vec<Option<Pool>>,
    open: BTreeMap<u64, Journey>,
    next: u64,
    random: Random,
    pub ends: Ends,
}

fn peer(region: usize) -> PeerId {
    PeerId(u16::try_from(region).unwrap())
}

impl Traffic {
    pub fn new(world: World, seed: u64) -> Self {
        Self {
            pools: (0..world.regions()).map(|_| None).collect(),
            world,
            open: BTreeMap::new(),
            next: 0,
            random: Random(seed ^ 0x007a_ff1c),
            ends: Ends::default(),
        }
    }

    /// Runs for a time, with so many new requests a second at each region; one region is overloaded.
    pub fn run(&mut self, time: Nanos, per_second: u64) -> Result<(), String> {
        let end = self.world.now + time;
        while self.world.now < end {
            self.world.run(STEP)?;
            for region in 0..self.pools.len() {
                self.follow(region);
                let busy = 1 + 6 * u64::from(region == 0);
                if self.random.below(1_000) < busy * per_second * STEP / MS {
                    self.send(region);
                }
            }
            for number in self.open.keys().copied().collect::<Vec<_>>() {
                self.advance(number);
            }
            for region in 0..self.pools.len() {
                self.carry_out(region)?;
            }
        }
        Ok(())
    }

    /// Waits until every request has ended, and checks that no router remembers it.
    pub fn finish(&mut self) -> Result<(), String> {
        self.run(WAIT_MAX, 0)?;
        if !self.open.is_empty() {
            return Err(format!("lost on the way: {:#?}", self.open));
        }
        for (region, pool) in self.pools.iter().enumerate() {
            let now = self.world.local(region);
            let router = &pool.as_ref().unwrap().router;
            let stats = router.stats(now);
            let forwarded: u32 = router.peers(now).map(|peer| peer.outstanding).sum();
            if (stats.queue_length, stats.in_flight, forwarded) != (0, 0, 0) {
                return Err(format!("r{region} remembers a request that has ended"));
            }
        }
        Ok(())
    }

    /// Passes the state of the regions to the pool of a service, as the driver does.
    fn follow(&mut self, region: usize) {
        let life = self.world.life(region);
        let pool = &mut self.pools[region];
        if pool.as_ref().map(|pool| pool.life) != life {
            let orphans = pool.take().map(|pool| pool.requests);
            for (number, _) in orphans.into_iter().flat_map(BTreeMap::into_values) {
                // Envoy goes on without its service. A request that works or travels continues.
                let stage = self.open.get(&number).map(|journey| journey.stage);
                if matches!(stage, Some(Stage::Deciding { region: at }) if at == region) {
                    self.work(number, region);
                }
            }
            let regions = self.pools.len();
            let now = self.world.local(region);
            self.pools[region] = life.map(|life| Pool::new(now, life, region, regions));
        }
        if !self.world.runs(region) {
            return;
        }
        let now = self.world.local(region);
        let reports: Vec<_> = (0..self.pools.len())
            .filter(|other| *other != region)
            .map(|other| {
                let pool = self.pools[other].as_ref();
                let is_heard = self.world.hears(region, other);
                let pool = pool.filter(|_| is_heard);
                (peer(other), pool.map(|pool| pool.router.report()))
            })
            .collect();
        let owned: BTreeSet<usize> = (0..self.pools.len())
            .filter(|other| self.world.owns(region, *other))
            .collect();
        let is_suspended = self.world.is_suspended(region);
        let Some(pool) = &mut self.pools[region] else {
            return;
        };
        for (peer, report) in reports {
            let event = match report {
                Some(report) => Event::PeerReported {
                    peer,
                    report,
                    as_of: now,
                    round_trip: std::time::Duration::from_millis(40),
                },
                None => Event::PeerLost(peer),
            };
            pool.router.handle(now, event);
        }
        for owner in pool.leased.clone().difference(&owned) {
            pool.remove(now, *owner);
        }
        for owner in owned.difference(&pool.leased.clone()) {
            pool.add(now, *owner);
        }
        pool.leased = owned;
        if std::mem::replace(&mut pool.is_suspended, is_suspended) != is_suspended {
            let own = pool.replicas.iter().filter(|(_, owner)| **owner == region);
            for (replica, _) in own {
                let event = match is_suspended {
                    true => Event::Draining(*replica),
                    false => Event::Resumed(*replica),
                };
                pool.router.handle(now, event);
            }
        }
    }

    /// A client sends a request, if its region's Envoy is there to take it.
    fn send(&mut self, home: usize) {
        if !self.world.has_gateway(home) {
            return;
        }
        self.next += 1;
        let number = self.next;
        let session = self.random.below(40);
        let stage = Stage::Deciding { region: home };
        let tried = Vec::new();
        let journey = Journey {
            home,
            session,
            tried,
            stage,
        };
        self.open.insert(number, journey);
        self.enter(number, home);
    }

    /// A request enters a region's Envoy.
    fn enter(&mut self, number: u64, region: usize) {
        let Some(pool) = &mut self.pools[region] else {
            return self.work(number, region);
        };
        self.next += 1;
        let id = self.next;
        let journey = self.open.get_mut(&number).unwrap();
        journey.stage = Stage::Deciding { region };
        let blocks = [journey.session, 1, 2];
        let tried: Vec<u16> = journey.tried.iter().map(|tried| peer(*tried).0).collect();
        let request = match region == journey.home {
            true => support::traveller(id, journey.session, &blocks, &tried),
            false => support::forwarded_request(id, journey.session, &blocks),
        };
        assert!(region == journey.home || matches!(request.scope, Scope::Forwarded));
        pool.requests.insert(id, (number, None));
        pool.router
            .handle(self.world.local(region), Event::Arrived(request));
    }

    fn work(&mut self, number: u64, gateway: usize) {
        let done = self.world.now + self.random.between(100, 1_200) * MS;
        let journey = self.open.get_mut(&number).unwrap();
        journey.stage = Stage::Working { gateway, done };
    }

    /// A forwarded request returns to its home.
    fn turn_back(&mut self, number: u64, from: usize, after: Nanos) {
        let arrives = self.world.now + after;
        let journey = self.open.get_mut(&number).unwrap();
        journey.stage = Stage::Returning { from, arrives };
    }

    /// Advances a request by one stage.
    fn advance(&mut self, number: u64) {
        let now = self.world.now;
        let (home, stage) = (self.open[&number].home, self.open[&number].stage);
        if !self.world.has_gateway(home) {
            self.ends.broken += 1;
            return self.end(number, End::Failed);
        }
        let reaches = |region| self.world.reaches(home, region) && self.world.has_gateway(region);
        match stage {
            Stage::Deciding { region }
            | Stage::Working {
                gateway: region, ..
            } if region != home && !reaches(region) => {
                self.forget(number, region, End::Failed);
                self.turn_back(number, region, KEEPALIVE);
            }
            Stage::Working { done, .. } if now >= done => {
                self.ends.served += 1;
                self.end(number, End::Answered);
            }
            Stage::Travelling { to, arrives } if now >= arrives => match reaches(to) {
                true => self.enter(number, to),
                false => self.turn_back(number, to, KEEPALIVE),
            },
            Stage::Returning { from, arrives } if now >= arrives => {
                self.ends.returned += 1;
                self.forget(number, home, End::Failed);
                self.open.get_mut(&number).unwrap().tried.push(from);
                self.enter(number, home);
            }
            Stage::Deciding { .. }
            | Stage::Working { .. }
            | Stage::Travelling { .. }
            | Stage::Returning { .. } => {}
        }
    }

    fn end(&mut self, number: u64, end: End) {
        for region in 0..self.pools.len() {
            self.forget(number, region, end);
        }
        self.open.remove(&number);
    }

    /// A service learns that a request has ended.
    fn forget(&mut self, number: u64, region: usize, end: End) {
        let now = self.world.local(region);
        let Some(pool) = &mut self.pools[region] else {
            return;
        };
        let requests = pool.requests.iter();
        let found = requests.filter(|(_, (journey, _))| *journey == number);
        for id in found.map(|(id, _)| *id).collect::<Vec<_>>() {
            pool.requests.remove(&id);
            let id = RequestId(id);
            let event = match end {
                End::Answered => finished(id),
                _ => Event::Aborted(id),
            };
            pool.router.handle(now, event);
        }
    }

    /// Carries out the decisions of a service.
    fn carry_out(&mut self, region: usize) -> Result<(), String> {
        if !self.world.runs(region) {
            return Ok(());
        }
        let now = self.world.local(region);
        if let Some(pool) = &mut self.pools[region] {
            pool.router.handle_timeout(now);
        }
        while let Some(pool) = &mut self.pools[region]
            && let Some(effect) = pool.router.poll_effect()
        {
            let (Effect::Dispatch(id, _) | Effect::Forward(id, _) | Effect::Reject { id, .. }) =
                &effect
            else {
                continue;
            };
            let id = id.0;
            let Some(&(number, _)) = pool.requests.get(&id) else {
                continue;
            };
            match effect {
                Effect::Dispatch(_, decision) => {
                    let owner = pool.replicas[&decision.replica];
                    self.ends.leased += u64::from(owner != region);
                    self.work(number, region);
                }
                Effect::Forward(_, forwarding) => {
                    let to = usize::from(forwarding.peer.0);
                    pool.requests.insert(id, (number, Some(to)));
                    self.ends.forwarded += 1;
                    let arrives = self.world.now + 20 * MS;
                    let journey = self.open.get_mut(&number).unwrap();
                    if journey.home != region || journey.tried.contains(&to) {
                        return Err(format!("forwarded from r{region} to r{to}: {journey:?}"));
                    }
                    journey.stage = Stage::Travelling { to, arrives };
                }
                Effect::Reject { .. } => {
                    pool.requests.remove(&id);
                    if self.open[&number].home == region {
                        self.ends.refused += 1;
                        self.end(number, End::Failed);
                    } else {
                        self.turn_back(number, region, 20 * MS);
                    }
                }
                Effect::Hung { .. } => {}
            }
        }
        Ok(())
    }
}

impl Pool {
    fn new(now: Time, life: u64, region: usize, regions: usize) -> Self {
        let config = RouterConfig {
            push: Push::Outstanding { max: SLOTS },
            ..RouterConfig::default()
        };
        let mut pool = Self {
            life,
            router: Router::new(config, life),
            replicas: BTreeMap::new(),
            leased: BTreeSet::new(),
            is_suspended: false,
            requests: BTreeMap::new(),
        };
        for other in (0..regions).filter(|other| *other != region) {
            let (peer, name) = (peer(other), format!("r{other}"));
            pool.router.handle(now, Event::PeerAdded { peer, name });
        }
        pool.add(now, region);
        pool
    }

    fn add(&mut self, now: Time, owner: usize) {
        for number in 0..REPLICAS {
            let replica = ReplicaId(u32::try_from(self.replicas.len()).unwrap());
            self.replicas.insert(replica, owner);
            let name = format!("r{owner}-{number}");
            let role = Role::Both;
            let event = Event::Added {
                replica,
                name,
                role,
            };
            self.router.handle(now, event);
        }
    }

    fn remove(&mut self, now: Time, owner: usize) {
        let gone = self.replicas.iter().filter(|(_, of)| **of == owner);
        for (replica, _) in gone {
            self.router.handle(now, Event::Draining(*replica));
            self.router.handle(now, Event::Removed(*replica));
        }
    }
}

fn finished(id: RequestId) -> Event {
    Event::Finished {
        id,
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    }
}
