//! All replicas of a pool, with the sets that decisions read.
//!
//! An event changes one replica, so the sets change for that replica only. Nothing walks over the pool on the path of a
//! request. Two things change by themselves, a probe's age and a breaker's back-off; a timer covers both.

mod estimate;
mod events;
mod learning;
mod lists;
mod silence;

use std::collections::{BTreeMap, BTreeSet};

use self::estimate::{CostInputs, LatencyBound};
pub(crate) use self::silence::Silence;
use super::latency::PoolLatency;
use super::least_squares::LinearModel;
use super::{CapacityRules, CounterSums, MeanWork, Replica, SignalLog};
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Availability, Push, ReplicaId, ReplicaStatus, Time};

/// Order of replicas by load: the load, sequence number of the last dispatch, and replica index, packed into one number. The load is the
/// number of requests at the replica, those of other services included, or what a policy estimates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u128);

/// Position of the load in a [`Rank`].
const LOAD_BIT: u32 = 80;

impl Rank {
    /// Rank behind every replica.
    pub(crate) const LAST: Self = Self(u128::MAX);

    const fn new(requests: u32, turn: u64, slot: ReplicaIndex) -> Self {
        let high = (requests as u128) << LOAD_BIT;
        Self(high | (turn as u128) << 16 | slot.0 as u128)
    }

    /// Rank of the same replica by another load.
    pub(crate) const fn with_load(self, load: u32) -> Self {
        let low = self.0 & ((1 << LOAD_BIT) - 1);
        Self((load as u128) << LOAD_BIT | low)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower part is the replica index"
    )]
    pub(crate) const fn slot(self) -> ReplicaIndex {
        ReplicaIndex(self.0 as u16)
    }

    /// Requests at the replica, those of other services included.
    #[expect(clippy::cast_possible_truncation, reason = "the highest part")]
    #[must_use]
    pub const fn requests(self) -> u32 {
        (self.0 >> LOAD_BIT) as u32
    }
}

#[derive(Debug, Default)]
pub(crate) struct Replicas {
    rules: CapacityRules,
    replicas: Vec<Option<Replica>>,
    slots: BTreeMap<ReplicaId, ReplicaIndex>,
    sets: Sets,
    by_load: BTreeSet<Rank>,
    /// Rank of each replica, available or not, side by side.
    ranks: Vec<Rank>,
    cost_inputs: Vec<CostInputs>,
    /// Free capacity of the available replicas, in total.
    free_capacity: u64,
    expiries: BTreeSet<(Time, ReplicaIndex)>,
    /// Replicas that an event changed and left available since the last [`Self::take_freed`].
    freed: Vec<ReplicaIndex>,
    turn: u64,
    model: PoolModel,
    /// Sources of what the pool learned.
    pub(crate) signals: SignalLog,
}

/// Replicas by what they may get.
#[derive(Debug, Default)]
struct Sets {
    staying: ReplicaSet,
    healthy: ReplicaSet,
    /// Healthy replicas with a closed breaker.
    proven: ReplicaSet,
    available: ReplicaSet,
    /// Available prefill replicas.
    prefillers: ReplicaSet,
}

/// Learned quantities of a pool.
#[derive(Debug)]
struct PoolModel {
    speed: PoolLatency,
    bound: LatencyBound,
    /// The replica whose model aged last.
    aged: usize,
    /// Sums of all engines' counters.
    counted: CounterSums,
    /// Mean answer length, in tokens.
    output_tokens: f64,
    /// Work of the prompts that arrived.
    work: MeanWork,
}

impl Default for PoolModel {
    fn default() -> Self {
        Self {
            speed: PoolLatency::default(),
            bound: LatencyBound::default(),
            aged: 0,
            counted: CounterSums::default(),
            output_tokens: estimate::OUTPUT_TOKENS.get(),
            work: MeanWork::default(),
        }
    }
}

impl Replicas {
    pub(crate) fn new(push: Push, probe_stale_after: core::time::Duration) -> Self {
        Self {
            rules: CapacityRules {
                push,
                probe_stale_after,
                ..CapacityRules::default()
            },
            ..Self::default()
        }
    }

    /// Available replicas.
    pub(crate) const fn available(&self) -> &ReplicaSet {
        &self.sets.available
    }

    /// Available replicas, or available prefill replicas, at a time for which the sets were not updated; for explanations.
    pub(crate) fn available_at(&self, has_requests: bool, now: Time) -> ReplicaSet {
        let mut available = ReplicaSet::default();
        for slot in self.all() {
            let is_open = self.availability(slot, now) == Some(Availability::Available);
            available.set(slot, is_open && self.has_requests(slot) == has_requests);
        }
        available
    }

    /// Whether requests are dispatched to a replica.
    pub(crate) fn has_requests(&self, slot: ReplicaIndex) -> bool {
        self.get(slot)
            .is_some_and(|replica| replica.role.has_requests())
    }

    /// Available prefill replicas; nearly always empty.
    pub(crate) const fn prefillers(&self) -> &ReplicaSet {
        &self.sets.prefillers
    }

    /// Replicas that get new requests, available or not.
    pub(crate) const fn staying(&self) -> &ReplicaSet {
        &self.sets.staying
    }

    /// Replicas that are neither draining, unhealthy nor failing; in panic mode the failing ones too.
    pub(crate) const fn trusted(&self) -> &ReplicaSet {
        if self.rules.is_breaker_panic {
            &self.sets.healthy
        } else {
            &self.sets.proven
        }
    }

    /// All replicas, in order of identity.
    pub(crate) fn all(&self) -> impl Iterator<Item = ReplicaIndex> + '_ {
        self.slots.values().copied()
    }

    /// Whether a replica is available, or why not.
    pub(crate) fn availability(&self, slot: ReplicaIndex, now: Time) -> Option<Availability> {
        self.get(slot)
            .map(|replica| replica.capacity(&self.rules, now).availability())
    }

    pub(crate) fn any_healthy(&self) -> bool {
        let unproven = |slot| self.get(slot).is_none_or(|r| r.probe.sent.is_none());
        match self.rules.push {
            Push::Pending => self.sets.healthy.iter().any(|slot| !unproven(slot)),
            Push::Outstanding { .. } | Push::Blind => !self.sets.healthy.is_empty(),
        }
    }

    pub(crate) fn by_load(&self) -> impl DoubleEndedIterator<Item = ReplicaIndex> + '_ {
        self.by_load.iter().map(|key| key.slot())
    }

    pub(crate) fn rank(&self, slot: ReplicaIndex) -> Rank {
        self.ranks.get(slot.index()).copied().unwrap_or(Rank::LAST)
    }

    pub(crate) fn get(&self, slot: ReplicaIndex) -> Option<&Replica> {
        self.replicas.get(slot.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: ReplicaIndex) -> Option<&mut Replica> {
        self.replicas.get_mut(slot.index())?.as_mut()
    }

    pub(crate) fn slot_of(&self, id: ReplicaId) -> Option<ReplicaIndex> {
        self.slots.get(&id).copied()
    }

    pub(crate) fn id_of(&self, slot: ReplicaIndex) -> Option<ReplicaId> {
        self.get(slot).map(|replica| replica.id)
    }

    /// Replicas that an event changed and left available since the last call and still are.
    pub(crate) fn take_freed(&mut self) -> Vec<ReplicaIndex> {
        let mut freed = core::mem::take(&mut self.freed);
        freed.sort_unstable();
        freed.dedup();
        freed.retain(|slot| self.sets.available.contains(*slot));
        freed
    }

    pub(crate) fn status(&self, slot: ReplicaIndex, now: Time) -> Option<ReplicaStatus> {
        self.get(slot)
            .map(|replica| replica.status(&self.rules, now))
    }

    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(time, _)| *time)
    }

    /// Free capacity of the available replicas; `None` under push rule `blind`.
    pub(crate) fn free_capacity(&self) -> Option<u64> {
        (self.rules.push != Push::Blind).then_some(self.free_capacity)
    }
}
