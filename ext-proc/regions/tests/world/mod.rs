//! A simulated world of regions in virtual time: services that run the real `Regions`, links with the properties of TCP, and
//! faults. A seed decides all of it.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]

mod checks;
mod dial;
mod faults;
mod links;
mod random;
mod service;

use core::time::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use isotherm_regions::{Effect, PoolReplicas, RegionName, RegionRecord};
use isotherm_router::{PeerId, PeerReport, Time};

pub use checks::{Checks, REJOIN, Worst};
pub use faults::Fault;
use links::{Link, LinkId};
pub use random::Random;
use service::Service;

/// Nanoseconds of the world's own clock.
pub type Nanos = u64;
pub const MS: Nanos = 1_000_000;
pub const INTERVAL: Duration = Duration::from_millis(200);
pub const INTERVAL_NS: Nanos = 200 * MS;

/// Event of the simulation.
#[derive(Clone, Debug)]
enum Due {
    Timer {
        at: usize,
        life: u64,
    },
    Pump {
        link: LinkId,
        answers: bool,
    },
    Dial {
        from: usize,
        to: usize,
        attempt: u64,
        step: dial::Step,
    },
    Probe {
        from: usize,
        of: usize,
        watch: u64,
    },
    Witness {
        from: usize,
        of: usize,
        watch: u64,
        sent: Nanos,
        alive: bool,
    },
    Fault(Fault),
    Repair(Fault),
    Gateway {
        at: usize,
    },
}

/// A region: its parts, and what survives their death.
pub struct Region {
    pub name: RegionName,
    pub service: Option<Service>,
    pub frozen: bool,
    pub gateway: bool,
    pub replicas: bool,
    /// Whether its certificate is good.
    pub trusted: bool,
    /// Whether a filter drops dials to the region and passes everything else.
    pub filtered: bool,
    /// Whether the host refuses connections while the service is dead.
    pub host: bool,
    pub members: Vec<PoolReplicas>,
    pub disk: BTreeMap<RegionName, RegionRecord>,
    /// Offset of the region's clock and its drift in parts per million.
    clock: (u64, u64),
}

pub struct World {
    pub seed: u64,
    pub now: Nanos,
    pub regions: Vec<Region>,
    /// Pairs of regions of which the second gets nothing from the first.
    pub cut: Vec<Vec<u32>>,
    /// Delay in one direction, in nanoseconds.
    pub delay: Vec<Vec<Nanos>>,
    pub give_back: Duration,
    /// Whether packets are lost now and then.
    pub noisy: bool,
    pub checks: Checks,
    pub random: Random,
    /// Effects for a driver of the pools, and the reports of the pools.
    pub outbox: Option<Vec<(usize, Effect)>>,
    pub reports: Vec<PeerReport>,
    links: BTreeMap<LinkId, Link>,
    dials: Vec<Vec<dial::Dialler>>,
    due: BinaryHeap<Reverse<(Nanos, u64)>>,
    what: BTreeMap<u64, Due>,
    next: u64,
    pub log: Vec<String>,
}

impl World {
    /// Regions that are all well and start together.
    pub fn new(seed: u64, regions: usize) -> Self {
        let mut random = Random(seed);
        let base: Vec<Nanos> = (0..regions).map(|_| random.between(1, 40) * MS).collect();
        let mut world = Self {
            seed,
            now: 0,
            regions: Vec::new(),
            cut: vec![vec![0; regions]; regions],
            delay: (0..regions)
                .map(|a| (0..regions).map(|b| base[a] + base[b]).collect())
                .collect(),
            give_back: Duration::from_millis(random.between(500, 4000)),
            noisy: true,
            checks: Checks::new(regions),
            links: BTreeMap::new(),
            dials: vec![vec![dial::Dialler::default(); regions]; regions],
            due: BinaryHeap::new(),
            what: BTreeMap::new(),
            next: 0,
            random,
            outbox: None,
            reports: vec![PeerReport::default(); regions],
            log: Vec::new(),
        };
        for index in 0..regions {
            let clock = (
                world.random.between(1, 1_000_000) * MS,
                990_000 + world.random.below(20_000),
            );
            world.regions.push(Region {
                name: RegionName::from(format!("r{index}").as_str()),
                service: None,
                frozen: false,
                gateway: true,
                replicas: true,
                trusted: true,
                filtered: false,
                host: true,
                members: members(index, 0),
                disk: BTreeMap::new(),
                clock,
            });
        }
        for index in 0..regions {
            world.start(index);
        }
        world
    }

    /// Lets time pass up to this point, and checks at every instant.
    pub fn run_until(&mut self, end: Nanos) {
        while let Some(&Reverse((at, number))) = self.due.peek() {
            if at > end {
                break;
            }
            self.due.pop();
            self.now = self.now.max(at);
            if let Some(due) = self.what.remove(&number) {
                self.happens(due);
                self.check();
            }
        }
        self.now = self.now.max(end);
        self.check();
    }

    fn happens(&mut self, due: Due) {
        match due {
            Due::Timer { at, life } => self.timer(at, life),
            Due::Pump { link, answers } => self.pump(link, answers),
            Due::Dial {
                from,
                to,
                attempt,
                step,
            } => self.dial_step(from, to, attempt, step),
            Due::Probe { from, of, watch } => self.probe(from, of, watch),
            Due::Witness {
                from,
                of,
                watch,
                sent,
                alive,
            } => self.witness(from, of, watch, sent, alive),
            Due::Fault(fault) => self.strike(&fault),
            Due::Repair(fault) => self.repair(&fault),
            Due::Gateway { at } => self.gateway_again(at),
        }
    }

    fn at(&mut self, when: Nanos, due: Due) {
        self.next += 1;
        self.due.push(Reverse((when.max(self.now), self.next)));
        self.what.insert(self.next, due);
    }

    /// Whether packets pass both ways.
    pub fn open(&self, a: usize, b: usize) -> bool {
        self.cut[a][b] == 0 && self.cut[b][a] == 0
    }

    /// The time that a region's own clock shows.
    pub fn local(&self, region: usize, at: Nanos) -> Time {
        let (ahead, rate) = self.regions[region].clock;
        let ns = u128::from(at) * u128::from(rate) / 1_000_000;
        Time::from_nanos(ahead + u64::try_from(ns).unwrap())
    }

    /// The world's time at which a region's clock shows this; not before.
    fn global(&self, region: usize, local: Time) -> Nanos {
        let (ahead, rate) = self.regions[region].clock;
        let ns = u128::from(local.as_nanos().saturating_sub(ahead)) * 1_000_000;
        u64::try_from(ns.div_ceil(u128::from(rate))).unwrap() + 1
    }

    /// Returns the region of a peer id.
    pub fn peer(region: usize, id: PeerId) -> usize {
        let id = usize::from(id.0);
        if id < region { id } else { id + 1 }
    }

    /// Returns the peer id of a region.
    pub fn id(region: usize, other: usize) -> PeerId {
        let id = if other < region { other } else { other - 1 };
        PeerId(u16::try_from(id).unwrap())
    }

    /// Whether a region's service runs and does not stand still.
    pub fn runs(&self, region: usize) -> bool {
        self.regions[region].service.is_some() && !self.regions[region].frozen
    }

    pub fn note(&mut self, text: String) {
        if self.log.len() < 2000 {
            self.log
                .push(format!("{:9.3} {text}", self.now as f64 / 1e9));
        }
    }
}

/// The replicas of a region.
fn members(region: usize, generation: u64) -> Vec<PoolReplicas> {
    let address = |n: u64| Arc::from(format!("10.{region}.{generation}.{n}:8000").as_str());
    vec![PoolReplicas {
        model: "m".into(),
        replicas: (0..4).map(address).collect(),
    }]
}
