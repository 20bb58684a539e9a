//! All replicas of a pool, with what a decision asks of them kept ready: who is available, and who has least to do.
//!
//! Each event changes one replica, so the sets are adjusted for that one; nothing here walks over the pool on the
//! path of a request. Two things change by themselves, a probe's age and a failing replica's back-off: a timer for the next.

mod cost_inputs;
mod estimate;
mod events;
mod latency_bound;
mod lists;

use std::collections::{BTreeMap, BTreeSet};

use self::cost_inputs::CostInputs;
use self::latency_bound::LatencyBound;
use super::{ArrivalRate, LatencyFit, LatencyModel, Replica, Rules};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Availability, Push, ReplicaId, ReplicaStatus, Time};

/// How replicas compare by load, less first: requests outstanding, when the last one was sent, and who it is.
pub(crate) type LoadKey = (u32, u64, ReplicaIndex);

/// The same as one number, which is compared in two steps instead of three branches: the order is searched twice in each
/// decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank(u128);

impl Rank {
    /// Behind all others: of no replica.
    pub(crate) const LAST: Self = Self(u128::MAX);

    const fn new((outstanding, turn, slot): LoadKey) -> Self {
        let high = (outstanding as u128) << 80;
        Self(high | (turn as u128) << 16 | slot.0 as u128)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the slot is what is kept")]
    pub(crate) const fn slot(self) -> ReplicaIndex {
        ReplicaIndex(self.0 as u16)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "each part is as long as it was"
    )]
    const fn key(self) -> LoadKey {
        ((self.0 >> 80) as u32, (self.0 >> 16) as u64, self.slot())
    }
}

/// All replicas of a pool.
#[derive(Debug)]
pub(crate) struct Replicas {
    rules: Rules,
    replicas: Vec<Option<Replica>>,
    slots: BTreeMap<ReplicaId, ReplicaIndex>,
    /// Those that are not draining.
    staying: ReplicaSet,
    healthy: ReplicaSet,
    /// Those of them whose requests do not fail.
    proven: ReplicaSet,
    available: ReplicaSet,
    /// Those that are available even while another one idles.
    throttled: ReplicaSet,
    /// Those that are available and have nothing to do.
    idle: ReplicaSet,
    /// The available ones, least outstanding first, then who has waited longest for a request.
    by_load: BTreeSet<Rank>,
    /// Under which key each stands there, or would: what a decision compares, side by side.
    ranks: Vec<Rank>,
    /// And what each offers is made of.
    cost_inputs: Vec<CostInputs>,
    /// How many requests they can start, summed, and of each.
    free_capacity: u64,
    free_capacities: Vec<u32>,
    /// When replicas change by themselves, in order of time and by slot.
    expiries: BTreeSet<(Time, ReplicaIndex)>,
    timers: Vec<Option<Time>>,
    /// Who has become available since this was last asked.
    freed: Vec<ReplicaIndex>,
    /// Whether the last idle replica got something to do since: then others take in more.
    throttle_ended: bool,
    turn: u64,
    /// How fast the pool is.
    speed: LatencyFit,
    latency: LatencyModel,
    latency_bound: LatencyBound,
    /// How long an answer is, on average, in tokens.
    output_tokens: f64,
    /// What the pool is sent.
    arrivals: ArrivalRate,
}

impl Replicas {
    pub(crate) fn new(push: Push, probe_stale_after: core::time::Duration) -> Self {
        Self {
            rules: Rules {
                push,
                probe_stale_after,
                is_probe_panic: false,
                is_breaker_panic: false,
            },
            replicas: Vec::new(),
            slots: BTreeMap::new(),
            staying: ReplicaSet::default(),
            healthy: ReplicaSet::default(),
            proven: ReplicaSet::default(),
            available: ReplicaSet::default(),
            throttled: ReplicaSet::default(),
            idle: ReplicaSet::default(),
            by_load: BTreeSet::new(),
            ranks: Vec::new(),
            cost_inputs: Vec::new(),
            free_capacity: 0,
            free_capacities: Vec::new(),
            expiries: BTreeSet::new(),
            timers: Vec::new(),
            freed: Vec::new(),
            throttle_ended: false,
            turn: 0,
            speed: LatencyFit::default(),
            latency: LatencyModel::default(),
            latency_bound: LatencyBound::default(),
            output_tokens: estimate::OUTPUT_TOKENS,
            arrivals: ArrivalRate::default(),
        }
    }

    /// Who may be sent a request now.
    ///
    /// While a replica idles, busy ones take in less at a time: a request that would wait inside a busy replica
    /// is better off on the idle one, however well it matches.
    pub(crate) fn available(&self) -> &ReplicaSet {
        if self.is_throttled() {
            &self.throttled
        } else {
            &self.available
        }
    }

    /// Who may be sent one, as of a time when the sets were not brought up to date: for explanations only.
    pub(crate) fn available_at(&self, now: Time) -> ReplicaSet {
        let mut available = ReplicaSet::default();
        for slot in self.all() {
            let open = self.availability(slot, now) == Some(Availability::Available);
            available.set(slot, open);
        }
        available
    }

    /// How many can be sent a request before they are full, be it that another one idles now.
    pub(crate) const fn available_in_all(&self) -> usize {
        self.available.len()
    }

    /// Everybody that gets new requests, available or not.
    pub(crate) const fn staying(&self) -> &ReplicaSet {
        &self.staying
    }

    /// Everybody that gets new requests, whose last probe, if any, was good, and whose requests do not fail; when that
    /// is nobody, those whose requests do.
    pub(crate) const fn trusted(&self) -> &ReplicaSet {
        if self.rules.is_breaker_panic {
            &self.healthy
        } else {
            &self.proven
        }
    }

    /// Everybody, in order of identity.
    pub(crate) fn all(&self) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.slots.values().copied()
    }

    /// Whether it takes another request, or why not.
    pub(crate) fn availability(&self, slot: ReplicaIndex, now: Time) -> Option<Availability> {
        self.get(slot)
            .map(|replica| replica.availability(&self.rules, now, self.is_throttled()))
    }

    /// Whether there is a replica whose health is not in doubt.
    pub(crate) fn any_healthy(&self) -> bool {
        let unproven = |slot| self.get(slot).is_none_or(|r| r.load().is_none());
        match self.rules.push {
            Push::Pending => self.healthy.iter().any(|slot| !unproven(slot)),
            Push::Outstanding { .. } | Push::Blind => !self.healthy.is_empty(),
        }
    }

    /// The available ones, least outstanding first.
    pub(crate) fn by_load(&self) -> impl DoubleEndedIterator<Item = ReplicaIndex> + '_ {
        self.by_load.iter().map(|key| key.slot())
    }

    /// How a replica compares by load.
    pub(crate) fn load_key(&self, slot: ReplicaIndex) -> LoadKey {
        self.rank(slot).key()
    }

    /// The same as one number.
    pub(crate) fn rank(&self, slot: ReplicaIndex) -> Rank {
        let rank = self.ranks.get(slot.index()).copied();
        rank.unwrap_or_else(|| nobody(slot))
    }

    pub(crate) fn get(&self, slot: ReplicaIndex) -> Option<&Replica> {
        self.replicas.get(slot.index())?.as_ref()
    }

    pub(crate) fn slot_of(&self, id: ReplicaId) -> Option<ReplicaIndex> {
        self.slots.get(&id).copied()
    }

    pub(crate) fn id_of(&self, slot: ReplicaIndex) -> Option<ReplicaId> {
        self.get(slot).map(|replica| replica.id)
    }

    /// Nobody asks who has become available so far.
    pub(crate) fn forget_freed(&mut self) {
        self.freed.clear();
        self.throttle_ended = false;
    }

    /// Whether those that take in less while another one idles have become available since this was last asked.
    pub(crate) fn take_throttle_ended(&mut self) -> bool {
        core::mem::take(&mut self.throttle_ended) && !self.is_throttled()
    }

    /// Who has become available since this was last asked, and still is.
    pub(crate) fn take_freed(&mut self) -> Vec<ReplicaIndex> {
        let mut freed = core::mem::take(&mut self.freed);
        if core::mem::take(&mut self.throttle_ended) {
            freed.extend(self.available.iter());
        }
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|slot| self.available.contains(*slot));
        freed
    }

    pub(crate) fn status(&self, slot: ReplicaIndex, now: Time) -> Option<ReplicaStatus> {
        self.get(slot)
            .map(|replica| replica.status(&self.rules, now, self.is_throttled()))
    }

    /// When the next replica changes by itself.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(time, _)| *time)
    }

    /// How many requests the available replicas can start now, summed; `None` where nothing bounds it.
    pub(crate) const fn free_capacity(&self) -> Option<u64> {
        match self.rules.push {
            Push::Pending | Push::Outstanding { .. } => Some(self.free_capacity),
            Push::Blind => None,
        }
    }

    fn is_throttled(&self) -> bool {
        self.rules.push == Push::Pending && !self.idle.is_empty()
    }
}

/// The key of a slot that is free.
const fn nobody(slot: ReplicaIndex) -> Rank {
    Rank::new((u32::MAX, u64::MAX, slot))
}
