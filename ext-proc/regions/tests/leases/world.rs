//! Regions with one service each, a store, and the network between them, in simulated time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use isotherm_regions::{
    LeaseConfig, LeaseEffect, LeaseInputs, Leases, PoolReplicas, RegionEntry, RegionName,
    StoreVersion, StoredEntry, WriteResult,
};
use isotherm_router::Time;

use super::random::Random;

/// Nanoseconds.
pub type Nanos = u64;
pub const MS: Nanos = 1_000_000;
pub const LEASE: Nanos = 2_000 * MS;
pub const GIVE_BACK: Nanos = 1_000 * MS;
const MARGIN: Nanos = LEASE / 5;
/// Time between two steps of the heartbeats, and the silence after which a region is not heard.
const TICK: Nanos = 100 * MS;
const SILENCE: Nanos = 600 * MS;

/// A defect that the rules must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    None,
    /// Writes without the version that it expects.
    IgnoresRevision,
    /// Measures leases by a clock that is set.
    TrustsWallClock,
}

#[derive(Default)]
struct Node {
    leases: Option<Leases>,
    life: u64,
    /// Speed of the clock, in thousandths.
    rate: u64,
    /// Time by which the wall clock was set forward.
    clock_set: Nanos,
    paused_until: Nanos,
    has_gateway: bool,
    is_cut: bool,
    timer: Option<Nanos>,
    owned: BTreeSet<usize>,
    is_suspended: bool,
    /// End of the lease on each region, by this service's monotonic clock.
    valid_until: BTreeMap<usize, Nanos>,
    heard_at: BTreeMap<usize, Nanos>,
    /// The record of the region as its service has seen it last.
    seen: Option<SeenLease>,
    /// Time at which a list of the service last got no answer, by its own clock.
    list_failed: Nanos,
    open: BTreeSet<u64>,
}

/// The lease in a record that a service has seen.
struct SeenLease {
    revision: u64,
    renewals: u64,
    /// Time at which the service saw these renewals first, by its own clock.
    since: Nanos,
}

enum Event {
    Tick,
    Timer,
    /// A request reaches the store.
    Request(u64, Request),
    /// The answer reaches the service; `None` after too long a wait.
    Answer(u64, Answer),
    /// A service that was stopped runs again.
    Resume,
}

#[derive(Clone)]
struct Request {
    sent: Nanos,
    write: Option<(RegionEntry, Option<StoreVersion>)>,
}

enum Answer {
    Listed(Nanos, Option<Vec<StoredEntry>>),
    Written(RegionEntry, Nanos, WriteResult),
}

pub struct World {
    pub now: Nanos,
    /// Leases of other regions taken.
    pub taken: u64,
    random: Random,
    mutant: Mutant,
    nodes: Vec<Node>,
    events: BTreeMap<(Nanos, u64), (usize, u64, Event)>,
    next: u64,
    store: BTreeMap<usize, (RegionEntry, u64)>,
    version: u64,
    is_store_up: bool,
    /// Pairs of regions that do not reach each other.
    cuts: BTreeSet<(usize, usize)>,
    loss_percent: u64,
    delay_max: Nanos,
    /// Begin of the time in which an owner and a holder decide, by the owner's clock.
    overlaps: BTreeMap<usize, Nanos>,
}

fn name(region: usize) -> RegionName {
    format!("r{region}").as_str().into()
}

fn index(name: &RegionName) -> usize {
    name[1..].parse().unwrap()
}

impl World {
    pub fn new(seed: u64, regions: usize, mutant: Mutant) -> Self {
        let mut random = Random(seed ^ 0x1ea5e);
        let node = |rate| Node {
            rate,
            has_gateway: true,
            ..Node::default()
        };
        let nodes = (0..regions).map(|_| node(random.between(900, 1_100)));
        let mut world = Self {
            now: 1_000 * MS,
            taken: 0,
            nodes: nodes.collect(),
            random,
            mutant,
            events: BTreeMap::new(),
            next: 0,
            store: BTreeMap::new(),
            version: 0,
            is_store_up: true,
            cuts: BTreeSet::new(),
            loss_percent: 0,
            delay_max: 20 * MS,
            overlaps: BTreeMap::new(),
        };
        for region in 0..regions {
            world.start(region);
        }
        world.schedule(world.now, 0, Event::Tick);
        world
    }

    /// Runs for a time. Fails when a rule is broken.
    pub fn run(&mut self, time: Nanos) -> Result<(), String> {
        let end = self.now + time;
        while let Some(next) = self.events.first_entry()
            && next.key().0 <= end
        {
            let ((at, _), (node, life, event)) = next.remove_entry();
            self.now = at;
            self.on_event(node, life, event)?;
            self.check()?;
        }
        self.now = end;
        Ok(())
    }

    fn on_event(&mut self, node: usize, life: u64, event: Event) -> Result<(), String> {
        if matches!(event, Event::Tick) {
            self.schedule(self.now + TICK, 0, Event::Tick);
            self.hear();
            return Ok(());
        }
        if let Event::Request(id, request) = event {
            return self.on_request(node, life, id, request);
        }
        let service = &mut self.nodes[node];
        if service.leases.is_none() || service.life != life {
            return Ok(());
        }
        if self.now < service.paused_until {
            // Whatever reaches a stopped process waits for it, behind the end of the stop.
            let at = service.paused_until;
            self.schedule(at, node, event);
            return Ok(());
        }
        if matches!(event, Event::Timer) && service.timer.is_none_or(|due| due > self.now) {
            // Another timer has replaced it.
            return Ok(());
        }
        let now = self.local(node);
        let service = &mut self.nodes[node];
        let leases = service.leases.as_mut().unwrap();
        match event {
            Event::Timer | Event::Resume => {
                service.timer = None;
                leases.handle_timeout(now);
            }
            Event::Answer(id, answer) if service.open.remove(&id) => match answer {
                Answer::Listed(sent, found) => {
                    let own = found.iter().flatten();
                    let own = own.filter(|stored| stored.entry.region == name(node));
                    for stored in own.map(|stored| stored.entry.clone()).collect::<Vec<_>>() {
                        self.see(node, &stored);
                    }
                    if found.is_none() {
                        self.nodes[node].list_failed = self.monotonic(node, self.now);
                    }
                    let sent = self.local_at(node, sent);
                    let leases = self.nodes[node].leases.as_mut().unwrap();
                    leases.on_listed(now, sent, found);
                }
                Answer::Written(entry, sent, result) => {
                    let until = self.monotonic(node, sent) + LEASE - MARGIN;
                    let sent = self.local_at(node, sent);
                    let is_written = matches!(result, WriteResult::Written(_));
                    if is_written && entry.region == name(node) {
                        self.see(node, &entry);
                    }
                    let service = &mut self.nodes[node];
                    if is_written && entry.holder == Some(name(node)) {
                        service.valid_until.insert(index(&entry.region), until);
                    }
                    let leases = service.leases.as_mut().unwrap();
                    leases.on_written(now, &entry.region, sent, result);
                }
            },
            Event::Answer(..) | Event::Request(..) | Event::Tick => {}
        }
        self.take_effects(node);
        Ok(())
    }

    fn take_effects(&mut self, node: usize) {
        let service = &mut self.nodes[node];
        let leases = service.leases.as_ref().unwrap();
        let owned: BTreeSet<usize> = leases.owned().map(|entry| index(&entry.region)).collect();
        self.taken += owned.difference(&service.owned).count() as u64;
        for dropped in service.owned.difference(&owned) {
            service.valid_until.remove(dropped);
        }
        service.owned = owned;
        service.is_suspended = leases.is_suspended();
        while let Some(effect) = self.nodes[node].leases.as_mut().unwrap().poll_effect() {
            match effect {
                LeaseEffect::List => self.send(node, None),
                LeaseEffect::Write(entry, version) => self.send(node, Some((entry, version))),
            }
        }
        let at = self.nodes[node].leases.as_ref().unwrap().poll_timeout();
        let wait = at.as_nanos().saturating_sub(self.local(node).as_nanos());
        let due = self.now + wait * 1_000 / self.nodes[node].rate + 1;
        if self.nodes[node].timer.is_none_or(|timer| due < timer) {
            self.nodes[node].timer = Some(due);
            self.schedule(due, node, Event::Timer);
        }
    }

    fn send(&mut self, node: usize, write: Option<(RegionEntry, Option<StoreVersion>)>) {
        let id = self.next;
        self.nodes[node].open.insert(id);
        let request = Request {
            sent: self.now,
            write,
        };
        let wait = LEASE / 10 * 1_000 / self.nodes[node].rate;
        let late = match &request.write {
            None => Answer::Listed(self.now, None),
            Some((entry, _)) => Answer::Written(entry.clone(), self.now, WriteResult::Unknown),
        };
        self.schedule(self.now + wait, node, Event::Answer(id, late));
        if !self.random.chance(self.loss_percent) {
            let at = self.now + self.random.between(1, self.delay_max);
            self.schedule(at, node, Event::Request(id, request));
        }
    }

    fn on_request(
        &mut self,
        node: usize,
        life: u64,
        id: u64,
        request: Request,
    ) -> Result<(), String> {
        if !self.is_store_up || self.nodes[node].is_cut {
            return Ok(());
        }
        let answer = match request.write {
            None => {
                let found = self.store.values().map(|(entry, version)| StoredEntry {
                    entry: entry.clone(),
                    version: StoreVersion(version.to_string().into()),
                });
                Answer::Listed(request.sent, Some(found.collect()))
            }
            Some((entry, expected)) => {
                let region = index(&entry.region);
                let current = self.store.get(&region);
                let version = current.map(|(_, version)| StoreVersion(version.to_string().into()));
                if version == expected || self.mutant == Mutant::IgnoresRevision {
                    self.check_write(node, region, &entry)?;
                    self.version += 1;
                    self.store.insert(region, (entry.clone(), self.version));
                    let version = StoreVersion(self.version.to_string().into());
                    Answer::Written(entry, request.sent, WriteResult::Written(version))
                } else {
                    Answer::Written(entry, request.sent, WriteResult::Conflict)
                }
            }
        };
        if !self.random.chance(self.loss_percent) {
            let at = self.now + self.random.between(1, self.delay_max);
            let key = (at, self.next);
            self.next += 1;
            self.events
                .insert(key, (node, life, Event::Answer(id, answer)));
        }
        Ok(())
    }

    /// Nothing is taken from a region whose lease is alive.
    fn check_write(
        &mut self,
        node: usize,
        region: usize,
        entry: &RegionEntry,
    ) -> Result<(), String> {
        let before = self
            .store
            .get(&region)
            .map(|(entry, _)| entry.holder.clone());
        let before = before.flatten().map(|holder| index(&holder));
        if before == entry.holder.as_ref().map(index) {
            return Ok(());
        }
        let Some(holder) = before.filter(|holder| *holder != node) else {
            return Ok(());
        };
        let service = &self.nodes[holder];
        let until = service.valid_until.get(&region);
        if service.leases.is_some()
            && until.is_some_and(|until| self.monotonic(holder, self.now) < *until)
        {
            return Err(format!(
                "r{node} took the live lease of r{holder} on r{region} at {} ms",
                self.now / MS
            ));
        }
        Ok(())
    }

    /// Notes what a service sees of its own record.
    fn see(&mut self, node: usize, entry: &RegionEntry) {
        let since = self.monotonic(node, self.now);
        let seen = &mut self.nodes[node].seen;
        let lease = (entry.revision, entry.renewals);
        if seen.as_ref().map(|seen| (seen.revision, seen.renewals)) != Some(lease) {
            let (revision, renewals) = lease;
            *seen = Some(SeenLease {
                revision,
                renewals,
                since,
            });
        }
    }

    /// Two regions do not decide about one replica. A service that stands still decides nothing.
    fn check(&mut self) -> Result<(), String> {
        for region in 0..self.nodes.len() {
            let takers: Vec<usize> = (0..self.nodes.len())
                .filter(|node| self.runs(*node) && self.owns(*node, region))
                .collect();
            if takers.len() > 1 {
                return Err(format!(
                    "{takers:?} decide about r{region} at {} ms",
                    self.now / MS
                ));
            }
            let owner = &self.nodes[region];
            let decides = self.runs(region) && owner.has_gateway && !owner.is_suspended;
            match takers.first() {
                Some(taker) if decides => self.check_overlap(region, *taker)?,
                _ => drop(self.overlaps.remove(&region)),
            }
        }
        Ok(())
    }

    /// An owner decides beside the holder of its lease only until it learns of the holder from the store, at most for the margin.
    /// An owner without the store keeps its replicas (rule 7 of `docs/design/recovery.md`): the margin counts from its last list
    /// without an answer.
    fn check_overlap(&mut self, region: usize, taker: usize) -> Result<(), String> {
        let (owner, now) = (&self.nodes[region], self.monotonic(region, self.now));
        let revision = self.revision(region);
        let is_known = owner
            .seen
            .as_ref()
            .is_some_and(|seen| seen.revision == revision && now - seen.since < LEASE);
        let list_failed = owner.list_failed;
        let since = *self.overlaps.entry(region).or_insert(now);
        let at = self.now / MS;
        if is_known {
            return Err(format!(
                "r{region} decides, and has seen that r{taker} does, at {at} ms"
            ));
        }
        if now - since.max(list_failed) > MARGIN {
            return Err(format!(
                "r{region} has two owners for longer than the margin at {at} ms"
            ));
        }
        Ok(())
    }

    /// Every region decides about its own replicas, and about no others.
    pub fn check_returned(&self) -> Result<(), String> {
        for (region, node) in self.nodes.iter().enumerate() {
            if self.holder(region) != Some(region) || !node.owned.is_empty() || node.is_suspended {
                let (holder, owned) = (self.holder(region), &node.owned);
                return Err(format!(
                    "not returned: r{region} is held by {holder:?}, and holds {owned:?}"
                ));
            }
        }
        Ok(())
    }

    /// Heartbeats between the regions.
    fn hear(&mut self) {
        for node in 0..self.nodes.len() {
            for other in 0..self.nodes.len() {
                let speaks = self.runs(other) && self.nodes[other].has_gateway;
                if node != other && speaks && self.reaches(node, other) {
                    let now = self.now;
                    self.nodes[node].heard_at.insert(other, now);
                }
            }
            self.set_inputs(node);
        }
    }

    fn set_inputs(&mut self, node: usize) {
        let now = self.now;
        if self.nodes[node].leases.is_none() || self.nodes[node].paused_until > now {
            return;
        }
        let local = self.local(node);
        let mut heard: Vec<usize> = (0..self.nodes.len())
            .filter(|other| self.hears(node, *other))
            .collect();
        let service = &mut self.nodes[node];
        heard.sort_by_key(|other| other.abs_diff(node));
        let inputs = LeaseInputs {
            address: format!("r{node}:9004").as_str().into(),
            pools: Some(vec![PoolReplicas {
                model: "m".into(),
                replicas: vec![format!("r{node}:8000").as_str().into()],
            }]),
            has_gateway: service.has_gateway,
            heard: heard.into_iter().map(name).collect(),
            refused: BTreeSet::new(),
        };
        let leases = service.leases.as_mut().unwrap();
        *leases.inputs_mut() = inputs;
        leases.handle_timeout(local);
        self.take_effects(node);
    }

    /// Injects one fault, or heals one.
    pub fn fault(&mut self, random: &mut Random) {
        let node = random.index(self.nodes.len());
        let other = random.index(self.nodes.len());
        match random.below(11) {
            0 => self.kill(node),
            1 => self.start(node),
            2 => {
                let end = self.now + random.between(LEASE / 4, 3 * LEASE);
                let end = end.max(self.nodes[node].paused_until);
                self.nodes[node].paused_until = end;
                self.schedule(end, node, Event::Resume);
            }
            3 => self.set_gateway(node, random.chance(50)),
            4 => self.cut_from_store(node, random.chance(70)),
            5 | 6 if node != other => {
                let pair = (node.min(other), node.max(other));
                if !self.cuts.remove(&pair) {
                    self.cuts.insert(pair);
                }
            }
            7 => self.set_store(random.chance(50)),
            8 => {
                self.loss_percent = if random.chance(50) {
                    random.between(1, 30)
                } else {
                    0
                }
            }
            9 => self.delay_max = random.between(1, 150) * MS,
            _ => self.nodes[node].clock_set += random.between(0, 2 * LEASE),
        }
    }

    /// Ends all faults; a service that was stopped runs again when its stop ends.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.is_store_up = true;
        self.loss_percent = 0;
        self.delay_max = 20 * MS;
        for node in 0..self.nodes.len() {
            self.nodes[node].is_cut = false;
            self.nodes[node].has_gateway = true;
            self.start(node);
        }
    }

    pub fn kill(&mut self, node: usize) {
        let service = &mut self.nodes[node];
        *service = Node {
            life: service.life,
            rate: service.rate,
            clock_set: service.clock_set,
            has_gateway: service.has_gateway,
            is_cut: service.is_cut,
            ..Node::default()
        };
    }

    /// Starts a service that does not run.
    pub fn start(&mut self, node: usize) {
        if self.nodes[node].leases.is_some() {
            return;
        }
        let config = LeaseConfig {
            name: name(node),
            lease: Duration::from_nanos(LEASE),
            give_back_after: Duration::from_nanos(GIVE_BACK),
        };
        self.nodes[node].life += 1;
        let now = self.local(node);
        self.nodes[node].leases = Some(Leases::new(config, now));
        self.set_inputs(node);
    }

    pub fn set_gateway(&mut self, node: usize, has_gateway: bool) {
        self.nodes[node].has_gateway = has_gateway;
        self.set_inputs(node);
    }

    pub fn cut_from_store(&mut self, node: usize, is_cut: bool) {
        self.nodes[node].is_cut = is_cut;
    }

    /// Cuts the network between a region and every other one, or heals it.
    pub fn isolate(&mut self, node: usize, is_isolated: bool) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            let pair = (node.min(other), node.max(other));
            if is_isolated {
                self.cuts.insert(pair);
            } else {
                self.cuts.remove(&pair);
            }
        }
    }

    pub fn set_store(&mut self, is_up: bool) {
        self.is_store_up = is_up;
    }

    pub fn holder(&self, region: usize) -> Option<usize> {
        self.store.get(&region)?.0.holder.as_ref().map(index)
    }

    pub fn revision(&self, region: usize) -> u64 {
        self.store
            .get(&region)
            .map_or(0, |(entry, _)| entry.revision)
    }

    pub fn regions(&self) -> usize {
        self.nodes.len()
    }

    /// Number of the start of the region's service, while the service is there.
    pub fn life(&self, node: usize) -> Option<u64> {
        let node = &self.nodes[node];
        node.leases.as_ref().map(|_| node.life)
    }

    pub fn has_gateway(&self, node: usize) -> bool {
        self.nodes[node].has_gateway
    }

    /// Whether the network between two regions is whole.
    pub fn reaches(&self, node: usize, other: usize) -> bool {
        !self.cuts.contains(&(node.min(other), node.max(other)))
    }

    /// Whether a region hears another one, by its heartbeats.
    pub fn hears(&self, node: usize, other: usize) -> bool {
        let heard_at = self.nodes[node].heard_at.get(&other);
        heard_at.is_some_and(|at| self.now - at < SILENCE)
    }

    /// Whether the region's service is there and does not stand still.
    pub fn runs(&self, node: usize) -> bool {
        self.nodes[node].leases.is_some() && self.nodes[node].paused_until <= self.now
    }

    pub fn owns(&self, node: usize, region: usize) -> bool {
        self.nodes[node].owned.contains(&region)
    }

    pub fn is_suspended(&self, node: usize) -> bool {
        self.nodes[node].is_suspended
    }

    fn schedule(&mut self, at: Nanos, node: usize, event: Event) {
        let life = self.nodes[node].life;
        self.events.insert((at, self.next), (node, life, event));
        self.next += 1;
    }

    /// The service's monotonic clock.
    fn monotonic(&self, node: usize, at: Nanos) -> Nanos {
        at * self.nodes[node].rate / 1_000
    }

    /// The clock that the service passes to its core.
    pub fn local(&self, node: usize) -> Time {
        self.local_at(node, self.now)
    }

    fn local_at(&self, node: usize, at: Nanos) -> Time {
        let set = match self.mutant {
            Mutant::TrustsWallClock => self.nodes[node].clock_set,
            Mutant::None | Mutant::IgnoresRevision => 0,
        };
        Time::from_nanos(self.monotonic(node, at) + set)
    }
}
