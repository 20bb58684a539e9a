//! Requests in regions that die, are partitioned and adopt each other. No request is lost before its first byte, forwarded
//! twice, or returned to a peer that returned it.
//!
//! The regions run in the world of `faults.rs`, and the pools run the real `Router`. Envoy is simulated as it is configured:
//! a forwarded request that meets no gateway, or breaks before its first byte, enters its own region again.
//! `ISOTHERM_SEED` runs one schedule; `ISOTHERM_SCHEDULES` sets their number.
#![allow(
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests, with a world that is a module; the environment may say how long to run"
)]

#[path = "../../router/tests/router/support/mod.rs"]
mod support;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use isotherm_regions::Effect as RegionEffect;
use isotherm_router::{
    Effect, End, Event, Push, ReplicaId, RequestId, Router, RouterConfig, Scope, ServedBy,
};
use world::{MS, Nanos, Random, World};

const SCHEDULES: u64 = 400;
const STEP: Nanos = 5 * MS;
/// Time until Envoy notices a dead connection to another region.
const KEEPALIVE: Nanos = 1_500 * MS;
/// Concurrent requests per replica.
const SLOTS: u32 = 2;

/// Request of a client with all its stages.
#[derive(Debug)]
struct Journey {
    home: usize,
    /// Incarnation of the home's Envoy that the client is connected to.
    gateway: u64,
    tried: Vec<usize>,
    at: At,
    work: Nanos,
    session: u64,
}

#[derive(Debug, PartialEq)]
enum At {
    /// A service decides about the request.
    Deciding { region: usize, id: u64 },
    /// The request is on its way to another region.
    Travelling { to: usize, arrives: Nanos },
    /// The request is on its way back.
    Returning { arrives: Nanos },
    /// A replica serves the request.
    Working {
        gateway: usize,
        /// Owner of the replica.
        of: usize,
        first_byte: Nanos,
        done: Nanos,
        told: Option<(usize, u64, u64)>,
    },
    /// The client has its response.
    ServedBy,
    /// The home region rejected the request.
    Refused,
    /// The stream broke after the first byte, or the client's Envoy died.
    Broken,
}

/// Pool of a service.
struct Pool {
    life: u64,
    router: Router,
    /// Owner of each replica.
    replicas: BTreeMap<ReplicaId, usize>,
    /// Owners of the adopted replicas.
    has: BTreeSet<usize>,
    /// Requests of the pool, and the peers that got them.
    requests: BTreeMap<u64, (usize, Option<usize>)>,
}

struct Traffic {
    world: World,
    pools: Vec<Option<Pool>>,
    journeys: Vec<Journey>,
    open: BTreeSet<usize>,
    /// Incarnations of the regions' Envoys.
    gateways: Vec<u64>,
    gateway_up: Vec<bool>,
    next: u64,
    random: Random,
    forwarded: u64,
    returned: u64,
    on_adopted: u64,
}

impl Traffic {
    fn new(seed: u64, regions: usize) -> Self {
        let mut world = World::new(seed, regions);
        world.outbox = Some(Vec::new());
        Self {
            pools: (0..regions).map(|_| None).collect(),
            journeys: Vec::new(),
            open: BTreeSet::new(),
            gateways: vec![0; regions],
            gateway_up: vec![true; regions],
            next: 0,
            random: Random(seed ^ 0x007a_ff1c),
            forwarded: 0,
            returned: 0,
            on_adopted: 0,
            world,
        }
    }

    /// Runs up to this time, with as many new requests a second at each region as its share says.
    fn run_until(&mut self, end: Nanos, per_second: &[u64]) {
        while self.world.now < end {
            let until = self.world.now + STEP;
            self.world.run_until(until);
            self.parts();
            self.told();
            for (region, rate) in per_second.iter().enumerate() {
                if self.random.below(1_000) < rate * STEP / MS {
                    self.client(region);
                }
            }
            for journey in self.open.clone() {
                self.moves(journey);
            }
            for region in 0..self.pools.len() {
                self.decided(region);
            }
        }
    }

    /// Handles services and Envoys that died or started since the last step.
    fn parts(&mut self) {
        for region in 0..self.pools.len() {
            let life = self.world.regions[region].service.as_ref();
            let life = life.map(|service| service.life);
            if life != self.pools[region].as_ref().map(|pool| pool.life) {
                if let Some(pool) = self.pools[region].take() {
                    self.orphans(region, &pool);
                }
                if let Some(life) = life {
                    self.pools[region] = Some(self.pool(region, life));
                }
            }
            let up = self.world.regions[region].gateway;
            if !up && self.gateway_up[region] {
                self.gateways[region] += 1;
            }
            self.gateway_up[region] = up;
        }
    }

    /// Sends the queued requests of a dead service to a replica, as its Envoy does.
    fn orphans(&mut self, region: usize, pool: &Pool) {
        for (id, (journey, _)) in &pool.requests {
            if self.journeys[*journey].at == (At::Deciding { region, id: *id }) {
                self.place(*journey, region, region, None);
            }
        }
    }

    fn pool(&self, region: usize, life: u64) -> Pool {
        let config = RouterConfig {
            push: Push::Outstanding { max: SLOTS },
            ..RouterConfig::default()
        };
        let mut pool = Pool {
            life,
            router: Router::new(config, life),
            replicas: BTreeMap::new(),
            has: BTreeSet::new(),
            requests: BTreeMap::new(),
        };
        let now = self.world.local(region, self.world.now);
        for other in (0..self.pools.len()).filter(|other| *other != region) {
            let peer = World::id(region, other);
            let name = format!("r{other}");
            pool.router.handle(now, Event::PeerAdded { peer, name });
        }
        pool.add(now, region, 4);
        pool
    }

    /// Carries out the effects of the regions' cores.
    fn told(&mut self) {
        for (at, effect) in self.world.outbox.replace(Vec::new()).unwrap() {
            let now = self.world.local(at, self.world.now);
            let Some(pool) = &mut self.pools[at] else {
                continue;
            };
            match effect {
                RegionEffect::UpdatePeer {
                    peer,
                    pools,
                    as_of,
                    round_trip,
                } => {
                    for (_, report) in pools.into_iter().filter(|(model, _)| &**model == "m") {
                        let event = Event::PeerReported {
                            peer,
                            report,
                            as_of,
                            round_trip,
                        };
                        pool.router.handle(now, event);
                    }
                }
                RegionEffect::MarkPeerLost(peer) => pool.router.handle(now, Event::PeerLost(peer)),
                RegionEffect::Adopt(peer, pools) => {
                    let of = World::peer(at, peer);
                    if !pool.has.contains(&of) {
                        let count = pools.iter().map(|pool| pool.replicas.len()).sum();
                        pool.add(now, of, count);
                    }
                }
                RegionEffect::Release(peer, _) => pool.remove(now, World::peer(at, peer)),
                _ => {}
            }
        }
        for (region, pool) in self.pools.iter().enumerate() {
            if let Some(pool) = pool {
                let now = self.world.local(region, self.world.now);
                self.world.reports[region] = pool.router.report(now);
            }
        }
    }

    /// A client sends a request, if its region's Envoy is there to take it.
    fn client(&mut self, home: usize) {
        if !self.gateway_up[home] || !self.world.regions[home].replicas {
            return;
        }
        let journey = self.journeys.len();
        self.journeys.push(Journey {
            home,
            gateway: self.gateways[home],
            tried: Vec::new(),
            at: At::Refused,
            work: self.random.between(100, 1_200) * MS,
            session: self.random.below(40),
        });
        self.open.insert(journey);
        self.enters(journey, home);
    }

    /// A request enters a region's Envoy.
    fn enters(&mut self, journey: usize, region: usize) {
        if !self.world.runs(region) || self.pools[region].is_none() {
            // Envoy goes on without its service.
            self.place(journey, region, region, None);
            return;
        }
        self.next += 1;
        let id = self.next;
        let now = self.world.local(region, self.world.now);
        let (session, home) = (self.journeys[journey].session, self.journeys[journey].home);
        let tried: Vec<u16> = self.journeys[journey]
            .tried
            .iter()
            .filter(|tried| **tried != region)
            .map(|tried| World::id(region, *tried).0)
            .collect();
        let request = if region == home {
            support::traveller(id, session, &[session, 1, 2], &tried)
        } else {
            support::forwarded_request(id, session, &[session, 1, 2])
        };
        assert!(region == home || matches!(request.scope, Scope::Forwarded));
        self.journeys[journey].at = At::Deciding { region, id };
        if let Some(pool) = &mut self.pools[region] {
            pool.requests.insert(id, (journey, None));
            pool.router.handle(now, Event::Arrived(request));
        }
    }

    /// A request comes to a replica, by way of a region's Envoy.
    fn place(
        &mut self,
        journey: usize,
        gateway: usize,
        of: usize,
        told: Option<(usize, u64, u64)>,
    ) {
        let work = self.journeys[journey].work;
        let way = self.world.delay[gateway][of];
        let first_byte = self.world.now + work / 3 + 2 * way;
        self.journeys[journey].at = At::Working {
            gateway,
            of,
            first_byte,
            done: first_byte + work,
            told,
        };
    }

    /// Carries out the decisions of the services.
    fn decided(&mut self, region: usize) {
        if !self.world.runs(region) {
            return;
        }
        let now = self.world.local(region, self.world.now);
        if let Some(pool) = &mut self.pools[region] {
            pool.router.handle_timeout(now);
        }
        while let Some(pool) = &mut self.pools[region] {
            let Some(effect) = pool.router.poll_effect() else {
                return;
            };
            let life = pool.life;
            match effect {
                Effect::Dispatch(id, decision) => {
                    // Replicas may have left since the decision.
                    let Some(&(journey, _)) = pool.requests.get(&id.0) else {
                        continue;
                    };
                    let of = pool.replicas[&decision.replica];
                    self.on_adopted += u64::from(of != region);
                    self.place(journey, region, of, Some((region, life, id.0)));
                }
                Effect::Forward(id, forwarding) => {
                    let to = World::peer(region, forwarding.peer);
                    let Some((journey, forwarded)) = pool.requests.get_mut(&id.0) else {
                        continue;
                    };
                    *forwarded = Some(to);
                    self.forwarded += 1;
                    let at = self.world.now + self.world.delay[region][to];
                    let journey = &mut self.journeys[*journey];
                    assert_eq!(
                        journey.home, region,
                        "a forwarded request is forwarded again: {journey:?}"
                    );
                    assert!(!journey.tried.contains(&to), "again to {to}: {journey:?}");
                    journey.at = At::Travelling { to, arrives: at };
                }
                // The requests end with their responses.
                Effect::Hung { .. } => {}
                Effect::Reject { id, reason, .. } => {
                    let Some((journey, _)) = pool.requests.remove(&id.0) else {
                        continue;
                    };
                    if self.journeys[journey].home == region {
                        self.world.note(format!("refused at home: {reason:?}"));
                        self.journeys[journey].at = At::Refused;
                    } else {
                        self.back(journey, region, 0);
                    }
                }
            }
        }
    }

    /// A forwarded request did not get its first byte there: its home's Envoy tries again, at home.
    fn back(&mut self, journey: usize, from: usize, after: Nanos) {
        let home = self.journeys[journey].home;
        let arrives = self.world.now + after + self.world.delay[from][home];
        self.journeys[journey].at = At::Returning { arrives };
    }

    /// Advances a request by one stage.
    fn moves(&mut self, number: usize) {
        let now = self.world.now;
        let (home, gateway) = (self.journeys[number].home, self.journeys[number].gateway);
        if self.gateways[home] != gateway || !self.gateway_up[home] {
            self.ends(number, At::Broken);
            return;
        }
        match self.journeys[number].at {
            At::Travelling { to, arrives } if now >= arrives => {
                let reached = self.world.open(home, to) && self.gateway_up[to];
                if reached && self.world.regions[to].replicas {
                    self.enters(number, to);
                } else {
                    self.back(number, to, KEEPALIVE);
                }
            }
            At::Deciding { region, .. }
                if region != home
                    && (!self.gateway_up[region] || !self.world.open(home, region)) =>
            {
                self.abort(number, region);
                self.back(number, region, KEEPALIVE);
            }
            At::Returning { arrives } if now >= arrives => {
                self.returned += 1;
                let last = self.forgets(number, ServedBy::UnknownHost, End::Failed);
                self.journeys[number].tried.extend(last);
                self.enters(number, home);
            }
            At::Working {
                gateway,
                of,
                first_byte,
                done,
                told,
            } => {
                let way = gateway == of || self.world.open(gateway, of);
                let there = self.world.regions[of].replicas && way;
                let link =
                    gateway == home || (self.gateway_up[gateway] && self.world.open(home, gateway));
                if there && link {
                    if now >= done {
                        self.tell(told, ServedBy::Unreported, End::Answered);
                        self.forgets(number, ServedBy::Unreported, End::Answered);
                        self.ends(number, At::ServedBy);
                    }
                } else if now >= first_byte {
                    self.tell(told, ServedBy::Unreported, End::Failed);
                    self.forgets(number, ServedBy::Unreported, End::Failed);
                    self.ends(number, At::Broken);
                } else if !link {
                    self.tell(told, ServedBy::Unreported, End::Failed);
                    self.back(number, gateway, KEEPALIVE);
                } else {
                    // Envoy goes down its list of fallbacks: a replica of its own, if there are any.
                    self.tell(told, ServedBy::UnknownHost, End::Failed);
                    if self.world.regions[gateway].replicas {
                        self.place(number, gateway, gateway, None);
                    } else if gateway != home {
                        self.back(number, gateway, 0);
                    } else {
                        // The home region has only its Envoy left.
                        self.ends(number, At::Broken);
                    }
                }
            }
            At::Refused => {
                self.open.remove(&number);
            }
            _ => {}
        }
    }

    /// A service is told how a request ended that it had placed on a replica.
    fn tell(&mut self, told: Option<(usize, u64, u64)>, served_by: ServedBy, end: End) {
        let Some((region, life, id)) = told else {
            return;
        };
        let now = self.world.local(region, self.world.now);
        if let Some(pool) = &mut self.pools[region]
            && pool.life == life
        {
            pool.requests.remove(&id);
            pool.router.handle(now, finished(id, served_by, end));
        }
    }

    /// The home's service is told how its forwarded request ended: who had been asked.
    fn forgets(&mut self, journey: usize, served_by: ServedBy, end: End) -> Option<usize> {
        let home = self.journeys[journey].home;
        let now = self.world.local(home, self.world.now);
        let pool = self.pools[home].as_mut()?;
        let found = pool
            .requests
            .iter()
            .find(|(_, (number, to))| *number == journey && to.is_some());
        let (id, (_, to)) = found.map(|(id, entry)| (*id, *entry))?;
        pool.requests.remove(&id);
        pool.router.handle(now, finished(id, served_by, end));
        to
    }

    fn abort(&mut self, journey: usize, region: usize) {
        let now = self.world.local(region, self.world.now);
        if let At::Deciding { region: at, id } = self.journeys[journey].at
            && at == region
            && let Some(pool) = &mut self.pools[region]
        {
            pool.requests.remove(&id);
            let id = RequestId(id);
            pool.router.handle(now, Event::Aborted(id));
        }
    }

    fn ends(&mut self, number: usize, at: At) {
        if at == At::Broken {
            // Every service that holds the request gets its end.
            for region in 0..self.pools.len() {
                let now = self.world.local(region, self.world.now);
                if let Some(pool) = &mut self.pools[region] {
                    let mine: Vec<u64> = pool
                        .requests
                        .iter()
                        .filter(|(_, (journey, _))| *journey == number)
                        .map(|(id, _)| *id)
                        .collect();
                    for id in mine {
                        pool.requests.remove(&id);
                        let id = RequestId(id);
                        pool.router.handle(now, Event::Aborted(id));
                    }
                }
            }
        }
        self.journeys[number].at = at;
        self.open.remove(&number);
    }
}

impl Pool {
    fn add(&mut self, now: isotherm_router::Time, of: usize, count: usize) {
        self.has.insert(of);
        for n in 0..count {
            let replica = ReplicaId(u32::try_from(self.replicas.len()).unwrap());
            self.replicas.insert(replica, of);
            let name = format!("10.{of}.0.{n}:8000");
            self.router.handle(
                now,
                Event::Added {
                    replica,
                    name,
                    role: isotherm_router::Role::Both,
                },
            );
        }
    }

    fn remove(&mut self, now: isotherm_router::Time, of: usize) {
        self.has.remove(&of);
        let gone = self.replicas.iter().filter(|(_, whose)| **whose == of);
        for (&replica, _) in gone {
            self.router.handle(now, Event::Draining(replica));
            self.router.handle(now, Event::Removed(replica));
        }
    }
}

fn finished(id: u64, served_by: ServedBy, end: End) -> Event {
    Event::Finished {
        id: RequestId(id),
        served_by,
        end,
        ttft_us: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens: None,
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn story(traffic: &mut Traffic) {
    let regions = traffic.pools.len();
    let quiet = 1_000 * MS;
    let end = quiet + traffic.random.between(4_000, 15_000) * MS;
    traffic.world.plan(quiet, end);
    // One region after another is overloaded.
    let mut busy = 0;
    while traffic.world.now < end {
        let rates: Vec<u64> = (0..regions)
            .map(|region| if region == busy { 14 } else { 3 })
            .collect();
        let until = (traffic.world.now + 3_000 * MS).min(end);
        traffic.run_until(until, &rates);
        busy = (busy + 1) % regions;
    }
    traffic.world.heal();
    // Queued requests wait for 30 s at most.
    traffic.run_until(end + 45_000 * MS, &vec![0; regions]);
    let left: Vec<&Journey> = traffic.open.iter().map(|n| &traffic.journeys[*n]).collect();
    assert!(left.is_empty(), "lost on the way: {left:#?}");
    for (region, pool) in traffic.pools.iter().enumerate() {
        let pool = pool.as_ref().expect("all is healed");
        let stats = pool
            .router
            .stats(traffic.world.local(region, traffic.world.now));
        assert_eq!(
            (stats.queue_length, stats.in_flight),
            (0, 0),
            "r{region} has forgotten something"
        );
        for peer in pool
            .router
            .peers(traffic.world.local(region, traffic.world.now))
        {
            assert_eq!(
                peer.outstanding, 0,
                "r{region} has forgotten what it forwarded"
            );
        }
        assert_eq!(pool.has, BTreeSet::from([region]));
    }
}

#[test]
fn requests_survive_what_regions_suffer() {
    let (first, count) = match number("ISOTHERM_SEED") {
        Some(seed) => (seed, 1),
        None => (4_000_000, number("ISOTHERM_SCHEDULES").unwrap_or(SCHEDULES)),
    };
    let mut sums = [0_u64; 7];
    for seed in first..first + count {
        let mut traffic = Traffic::new(seed, 2 + Random(seed).index(3));
        let result = catch_unwind(AssertUnwindSafe(|| story(&mut traffic)));
        if let Err(panic) = result {
            println!("{}", traffic.world.log.join("\n"));
            println!(
                "failed at {} ms; run it again with ISOTHERM_SEED={seed}",
                traffic.world.now / MS
            );
            resume_unwind(panic);
        }
        let ended = |at: At| traffic.journeys.iter().filter(|j| j.at == at).count() as u64;
        let counts = [
            traffic.journeys.len() as u64,
            ended(At::ServedBy),
            ended(At::Refused),
            ended(At::Broken),
            traffic.forwarded,
            traffic.returned,
            traffic.on_adopted,
        ];
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    // In the end everything was served, refused by its home, or broke with its client's own Envoy or after the first byte.
    let [all, served, refused, broken, forwarded, returned, adopted] = sums;
    println!(
        "{count} schedules from {first}: {all} requests, {served} served, {refused} refused, {broken} broken, {forwarded} forwarded, {returned} came back, {adopted} on adopted replicas"
    );
    assert_eq!(all, served + refused + broken);
    if count > 100 {
        assert!(
            forwarded * 50 > all && returned > 0 && adopted > 0,
            "the faults are mild"
        );
    }
}
