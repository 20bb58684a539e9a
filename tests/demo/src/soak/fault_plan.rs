//! The faults of each round, which follow from the seed alone.
//!
//! A deck with every kind of fault is shuffled and dealt, so a short run has each kind once before any comes again. The first
//! service and the first Envoy are never killed: the run compares their memory at its start with that at its end.

use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use strum::{EnumIter, IntoEnumIterator as _};

/// Faults in one round.
const FAULTS: usize = 4;
/// Latest begin of a fault in its round, ms.
const BEGIN_MS_MAX: u64 = 4_000;
/// Length of a fault, ms.
const LENGTH_MS: std::ops::RangeInclusive<u64> = 1_000..=6_000;
/// Length of a time in which a replica never responds, ms: longer than the shortest patience of the service. Other faults
/// delay first bytes, and the service is then more patient.
const HANGING_MS: std::ops::RangeInclusive<u64> = 13_000..=15_000;
/// Longest time for which an Envoy or a service is suspended, ms.
const SUSPENDED_MS_MAX: u64 = 3_000;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter)]
pub(super) enum FaultKind {
    /// A replica is killed and started again.
    ReplicaKilled,
    /// A replica is suspended.
    ReplicaFrozen,
    /// A replica computes slowly.
    ReplicaSlow,
    /// A replica fails some requests with 500.
    ReplicaFailing,
    /// A replica fails some requests with 503.
    ReplicaBusy,
    /// A replica accepts requests and never responds to them, until it is started again.
    ReplicaHanging,
    /// A replica refuses connections.
    ReplicaRefusing,
    /// The network to a replica is slow.
    NetworkSlow,
    /// The network to a replica loses every packet.
    NetworkSilent,
    /// The network to a replica resets every connection.
    NetworkCut,
    /// A service is killed and started again.
    ServiceKilled,
    /// A service is suspended.
    ServiceFrozen,
    /// An Envoy is killed and started again.
    EnvoyKilled,
    /// An Envoy is suspended.
    EnvoyFrozen,
}

/// The process or network of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A replica, or the network to it.
    Replica(usize),
    /// A service.
    Service(usize),
    /// An Envoy.
    Envoy(usize),
}

/// A fault to inject, with times since the beginning of its round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlannedFault {
    pub(super) kind: FaultKind,
    pub(super) target: Target,
    pub(super) begin: Duration,
    pub(super) end: Duration,
}

/// The numbers of processes of each sort.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) replicas: usize,
    pub(super) services: usize,
    pub(super) envoys: usize,
}

/// The source of the rounds' faults.
#[derive(Debug)]
pub(super) struct FaultPlan {
    random: Pcg64Mcg,
    deck: Vec<FaultKind>,
    sizes: Sizes,
}

impl FaultKind {
    /// The fault in words.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::ReplicaKilled => "replica killed",
            Self::ReplicaFrozen => "replica suspended",
            Self::ReplicaSlow => "replica slow",
            Self::ReplicaFailing => "replica fails requests (500)",
            Self::ReplicaBusy => "replica fails requests (503)",
            Self::ReplicaHanging => "replica never responds",
            Self::ReplicaRefusing => "replica refuses connections",
            Self::NetworkSlow => "network slow",
            Self::NetworkSilent => "network silent",
            Self::NetworkCut => "network cut",
            Self::ServiceKilled => "service killed",
            Self::ServiceFrozen => "service suspended",
            Self::EnvoyKilled => "Envoy killed",
            Self::EnvoyFrozen => "Envoy suspended",
        }
    }

    /// Whether connections to a replica break when the fault begins or ends.
    pub(super) const fn breaks_responses(self) -> bool {
        matches!(
            self,
            Self::ReplicaKilled | Self::ReplicaHanging | Self::NetworkCut
        )
    }
}

impl FaultPlan {
    pub(super) fn new(seed: u64, sizes: Sizes) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            deck: Vec::new(),
            sizes,
        }
    }

    /// Draws the faults of the next round. No target has two of them.
    pub(super) fn next_round(&mut self) -> Vec<PlannedFault> {
        let mut faults: Vec<PlannedFault> = Vec::new();
        let mut postponed = Vec::new();
        while faults.len() < FAULTS && postponed.len() < FAULTS {
            let kind = self.deal();
            let taken: Vec<Target> = faults.iter().map(|fault| fault.target).collect();
            match self.target(kind, &taken) {
                Some(target) => faults.push(self.times(kind, target)),
                None => postponed.push(kind),
            }
        }
        self.deck.extend(postponed);
        faults
    }

    fn deal(&mut self) -> FaultKind {
        if self.deck.is_empty() {
            self.deck.extend(FaultKind::iter());
            self.deck.shuffle(&mut self.random);
        }
        self.deck.pop().unwrap_or(FaultKind::ReplicaKilled)
    }

    /// Draws a target that has no fault yet.
    fn target(&mut self, kind: FaultKind, taken: &[Target]) -> Option<Target> {
        let Sizes {
            replicas,
            services,
            envoys,
        } = self.sizes;
        let mut targets: Vec<Target> = match kind {
            FaultKind::ServiceKilled => (1..services).map(Target::Service).collect(),
            FaultKind::ServiceFrozen => (0..services).map(Target::Service).collect(),
            FaultKind::EnvoyKilled => (1..envoys).map(Target::Envoy).collect(),
            FaultKind::EnvoyFrozen => (0..envoys).map(Target::Envoy).collect(),
            _ => (0..replicas).map(Target::Replica).collect(),
        };
        targets.retain(|target| !taken.contains(target));
        targets.shuffle(&mut self.random);
        targets.pop()
    }

    fn times(&mut self, kind: FaultKind, target: Target) -> PlannedFault {
        let begin = self.random.random_range(0..=BEGIN_MS_MAX);
        let length = self.random.random_range(LENGTH_MS);
        let length = match kind {
            FaultKind::EnvoyFrozen | FaultKind::ServiceFrozen => length.min(SUSPENDED_MS_MAX),
            FaultKind::ReplicaHanging => self.random.random_range(HANGING_MS),
            _ => length,
        };
        PlannedFault {
            kind,
            target,
            begin: Duration::from_millis(begin),
            end: Duration::from_millis(begin + length),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SIZES: Sizes = Sizes {
        replicas: 4,
        services: 2,
        envoys: 2,
    };

    fn rounds(seed: u64, count: usize) -> Vec<Vec<PlannedFault>> {
        let mut plan = FaultPlan::new(seed, SIZES);
        (0..count).map(|_| plan.next_round()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_faults() {
        assert_eq!(rounds(7, 20), rounds(7, 20));
        assert_ne!(rounds(7, 20), rounds(8, 20));
    }

    #[test]
    fn no_target_has_two_faults_in_a_round_and_the_first_service_and_envoy_survive() {
        for round in (0..50).flat_map(|seed| rounds(seed, 10)) {
            assert!(!round.is_empty());
            for (index, fault) in round.iter().enumerate() {
                assert!(fault.begin < fault.end);
                assert!(
                    round
                        .iter()
                        .skip(index + 1)
                        .all(|other| other.target != fault.target)
                );
                let is_kill = matches!(
                    fault.kind,
                    FaultKind::ServiceKilled | FaultKind::EnvoyKilled
                );
                let is_first = matches!(fault.target, Target::Service(0) | Target::Envoy(0));
                assert!(!(is_kill && is_first), "{fault:?}");
            }
        }
    }

    #[test]
    fn five_rounds_have_every_kind() {
        for seed in 0..50 {
            let kinds = rounds(seed, 5).concat().into_iter().map(|fault| fault.kind);
            let kinds: BTreeSet<FaultKind> = kinds.collect();
            assert_eq!(kinds.len(), FaultKind::iter().count(), "{kinds:?}");
        }
    }
}
