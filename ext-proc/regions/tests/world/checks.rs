//! Checks of the adoption rule at every instant, and the longest times seen.

use isotherm_regions::{Heartbeat, ReleaseReason};

use super::dial::PAUSE_MAX;
use super::{INTERVAL_NS, MS, Nanos, Random, World};

/// Longest age of an accepted heartbeat, and of an unnoticed loss, with clocks that differ by 1 %.
const SILENCE: Nanos = 3 * INTERVAL_NS + 3 * INTERVAL_NS / 50;
/// Longest time until two services that can reach each other hear each other: the rest of a failing dial, the backoff, and a
/// successful dial.
pub const REJOIN: Nanos = 2_000 * MS + PAUSE_MAX + 2_500 * MS;
/// Longest time until a dead region is adopted when each other region is up, or dead with live replicas.
pub const ADOPTION: Nanos = 14_000 * MS;

/// Longest times seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worst {
    pub adoption: Nanos,
    pub give_back: Nanos,
    pub adoptions: u64,
    pub conflicts: u64,
    pub waited: u64,
}

impl Worst {
    pub fn merge(&mut self, other: &Self) {
        self.adoption = self.adoption.max(other.adoption);
        self.give_back = self.give_back.max(other.give_back);
        self.adoptions += other.adoptions;
        self.conflicts += other.conflicts;
        self.waited += other.waited;
    }
}

pub struct Checks {
    hears: Vec<Vec<Heard>>,
    kept: Vec<Vec<Vec<Heartbeat>>>,
    /// Since when two regions could hear each other, and the second was well.
    clear_since: Vec<Vec<Option<Nanos>>>,
    /// Since when the second could not be heard by the first.
    mute_since: Vec<Vec<Option<Nanos>>>,
    /// Time since which nothing prevents a region's adoption, and the fingerprint of the world.
    adoptable: Vec<Option<(Nanos, Vec<u64>)>>,
    pub worst: Worst,
}

#[derive(Clone, Copy, Default)]
struct Heard {
    now: bool,
    made: Nanos,
    asked: Nanos,
}

impl Checks {
    pub fn new(count: usize) -> Self {
        Self {
            hears: vec![vec![Heard::default(); count]; count],
            kept: vec![vec![Vec::new(); count]; count],
            clear_since: vec![vec![None; count]; count],
            mute_since: vec![vec![None; count]; count],
            adoptable: vec![None; count],
            worst: Worst::default(),
        }
    }

    pub fn started(&mut self, at: usize) {
        self.hears[at].fill(Heard::default());
    }

    pub fn died(&mut self, at: usize) {
        self.hears[at].fill(Heard::default());
    }

    pub fn keep(&mut self, at: usize, from: usize, heartbeat: Heartbeat) {
        let kept = &mut self.kept[at][from];
        if kept.len() == 8 {
            kept.remove(0);
        }
        kept.push(heartbeat);
    }

    pub fn old(&self, at: usize, from: usize, random: &mut Random) -> Option<Heartbeat> {
        let kept = &self.kept[at][from];
        (!kept.is_empty()).then(|| kept[random.index(kept.len())].clone())
    }

    /// Checks an accepted report: it is not older than its age says, and newer than the last one.
    pub fn reported(&mut self, at: usize, of: usize, asked: Nanos, made: Nanos, now: Nanos) {
        let last = &mut self.hears[at][of];
        assert!(
            asked <= made + 2 * MS,
            "r{at} takes a report of r{of} for younger than it is"
        );
        assert!(
            now - asked <= SILENCE,
            "r{at} believes an old report of r{of}"
        );
        assert!(
            made >= last.made && asked > last.asked,
            "r{at} goes back to an earlier report of r{of}"
        );
        *last = Heard {
            now: true,
            made,
            asked,
        };
    }

    pub fn lost(&mut self, at: usize, of: usize) {
        self.hears[at][of].now = false;
    }

    pub fn adopted(&mut self, _at: usize, of: usize, now: Nanos) {
        self.worst.adoptions += 1;
        if let Some((since, _)) = &self.adoptable[of] {
            self.worst.adoption = self.worst.adoption.max(now - since);
            self.worst.waited += 1;
        }
    }

    pub fn released(&mut self, _at: usize, _of: usize, why: ReleaseReason) {
        if why == ReleaseReason::Conflict {
            self.worst.conflicts += 1;
        }
    }

    /// Whether one heard the other lately; a packet or two may have been lost since.
    pub fn heard_lately(&self, at: usize, of: usize, now: Nanos) -> bool {
        now - self.hears[at][of].asked < 2_000 * MS
    }
}

impl World {
    /// Checks everything that must hold now.
    pub fn check(&mut self) {
        let count = self.regions.len();
        for at in 0..count {
            for of in (0..count).filter(|of| *of != at) {
                self.check_pair(at, of);
            }
        }
        for of in 0..count {
            let holders: Vec<usize> = (0..count)
                .filter(|at| self.runs(*at) && self.held(*at).contains(&of))
                .collect();
            assert!(holders.len() <= 1, "r{of} is adopted by {holders:?}");
            self.check_adopted(of, !holders.is_empty());
        }
    }

    /// Prints the state of every service after a failure.
    pub fn print(&self) {
        for (at, region) in self.regions.iter().enumerate() {
            let Some(service) = &region.service else {
                println!("r{at}: no service");
                continue;
            };
            println!(
                "r{at}: {:?}",
                service.regions.status(self.local(at, self.now))
            );
        }
    }

    fn check_pair(&mut self, at: usize, of: usize) {
        let both = self.runs(at) && self.runs(of) && self.open(at, of);
        let mute = self.runs(at) && !(self.runs(of) && self.open(at, of));
        let since = &mut self.checks.mute_since[at][of];
        *since = mute.then(|| since.unwrap_or(self.now));
        if since.is_some_and(|since| self.now > since + SILENCE) {
            assert!(
                !self.checks.hears[at][of].now,
                "r{at} does not notice the loss of r{of}"
            );
        }
        let (one, other) = (&self.regions[at], &self.regions[of]);
        let near = self.delay[at][of] < 120 * MS;
        let clear = both && near && one.trusted && other.trusted && other.gateway;
        let since = &mut self.checks.clear_since[at][of];
        *since = clear.then(|| since.unwrap_or(self.now));
        let give_back = u64::try_from(self.give_back.as_nanos()).unwrap() * 51 / 50;
        if let Some(since) = *since
            && self.now > since
            && self.held(at).contains(&of)
        {
            let well_for = self.now - since;
            self.checks.worst.give_back = self
                .checks
                .worst
                .give_back
                .max(well_for.saturating_sub(give_back));
            assert!(
                well_for <= REJOIN + give_back + 2 * INTERVAL_NS,
                "r{at} keeps r{of}, which has been well for {} ms",
                well_for / MS
            );
        }
    }

    /// Checks that a region is adopted in time when each other region is up or provably dead.
    fn check_adopted(&mut self, of: usize, held: bool) {
        let state = self.adoptable(of);
        let entry = &mut self.checks.adoptable[of];
        *entry = match (state, entry.take()) {
            (Some(state), Some((since, before))) if state == before && !held => {
                Some((since, before))
            }
            (Some(state), _) if !held => Some((self.now, state)),
            _ => None,
        };
        if let Some((since, _)) = entry {
            let waits = self.now - *since;
            if waits > ADOPTION {
                panic!("no region adopts r{of} for {} ms", waits / MS);
            }
        }
    }

    /// Returns a fingerprint of the world if nothing prevents the region's adoption.
    fn adoptable(&self, of: usize) -> Option<Vec<u64>> {
        let count = self.regions.len();
        let down = &self.regions[of];
        if !down.replicas || (self.runs(of) && down.gateway) || !down.trusted {
            return None;
        }
        let mut state = Vec::new();
        let mut has_adopter = false;
        for at in 0..count {
            for other in 0..count {
                if !self.open(at, other) || self.delay[at][other] > 120 * MS {
                    return None;
                }
            }
            let region = &self.regions[at];
            state.push(region.service.as_ref().map_or(0, |service| service.life));
            if at == of {
                state.push(u64::from(region.frozen));
                continue;
            }
            let well = self.runs(at) && region.gateway && region.trusted;
            let dead = region.service.is_none() && region.replicas && region.trusted;
            if !well && !dead {
                return None;
            }
            has_adopter |= well;
            for other in (0..count).filter(|other| *other != at && well) {
                let name = &self.regions[other].name;
                let record = region.disk.get(name);
                if record.is_none_or(|record| record.pools.is_empty()) {
                    return None;
                }
            }
        }
        has_adopter.then_some(state)
    }
}
