//! Replicas that drain, return and leave.
//!
//! The victim is the coldest replica: the one whose prefixes cost the least work to recompute, counting only prefixes that no other
//! replica holds. Removing the replica with the fewest requests instead throws away the cache of a conversation that pauses.
//! A replica that the planner drained is the first to return, and its prefixes are still in the router's index.

use std::collections::BTreeSet;

use core::time::Duration;
use isotherm_router::Time;
use serde::{Deserialize, Serialize};

use crate::{ReplicaSample, ReplicaState};

/// Drained replicas of a pool, and how long it has had too many.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Removal {
    /// Replicas that the planner asked to drain.
    drained: BTreeSet<String>,
    /// Replicas that a sibling's plan wants back.
    #[serde(skip)]
    released: BTreeSet<String>,
    /// Begin of the surplus, in nanoseconds.
    surplus_since: Option<u64>,
}

/// Changes of the replicas that follow from a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemovalPlan {
    pub(crate) drain: Vec<String>,
    pub(crate) undrain: Vec<String>,
    pub(crate) drained: Vec<String>,
    pub(crate) donate: Vec<String>,
    pub(crate) order: Vec<String>,
    pub(crate) surplus: u32,
}

impl Removal {
    /// Whether a replica drains because the planner asked for it.
    pub(crate) fn is_drained(&self, name: &str) -> bool {
        self.drained.contains(name)
    }

    /// Replicas that drain because the planner asked for it.
    pub(crate) fn draining<'a>(&self, replicas: &'a [ReplicaSample]) -> Vec<&'a ReplicaSample> {
        let draining = replicas
            .iter()
            .filter(|replica| replica.state == ReplicaState::Draining);
        draining
            .filter(|replica| self.drained.contains(&replica.name))
            .collect()
    }

    /// Takes over the drained replicas of a sibling's plan.
    pub(crate) fn adopt(&mut self, drained: Vec<String>) {
        let drained: BTreeSet<String> = drained.into_iter().collect();
        let released = self.drained.difference(&drained).cloned();
        self.released.extend(released);
        self.released.retain(|name| !drained.contains(name));
        self.drained = drained;
    }

    /// Follows a sibling's plan: drains what it drains, and nothing else.
    pub(crate) fn follow(&mut self, replicas: &[ReplicaSample], desired: u32) -> RemovalPlan {
        let of = |state, names: &BTreeSet<String>| -> Vec<String> {
            let replicas = replicas.iter().filter(|replica| replica.state == state);
            let names = replicas.filter(|replica| names.contains(&replica.name));
            names.map(|replica| replica.name.clone()).collect()
        };
        let undrain = of(ReplicaState::Draining, &self.released);
        self.released.retain(|name| undrain.contains(name));
        let ready = coldest_first(
            replicas
                .iter()
                .filter(|replica| replica.state == ReplicaState::Ready),
        );
        let present = ready.len() + self.draining(replicas).len();
        let surplus = present.saturating_sub(desired as usize);
        RemovalPlan {
            drain: of(ReplicaState::Ready, &self.drained),
            undrain,
            drained: self.drained.iter().cloned().collect(),
            donate: Vec::new(),
            order: ready.iter().map(|replica| replica.name.clone()).collect(),
            surplus: u32::try_from(surplus).unwrap_or(u32::MAX),
        }
    }

    /// Plans for a desired number.
    pub(crate) fn plan(
        &mut self,
        now: Time,
        replicas: &[ReplicaSample],
        desired: u32,
        donate_after: Duration,
    ) -> RemovalPlan {
        self.drained
            .retain(|name| replicas.iter().any(|replica| replica.name == *name));
        let ready = coldest_first(
            replicas
                .iter()
                .filter(|replica| replica.state == ReplicaState::Ready),
        );
        let draining = coldest_first(self.draining(replicas).into_iter());
        let desired_len = desired as usize;
        let excess = ready.len().saturating_sub(desired_len);
        let missing = desired_len.saturating_sub(ready.len());
        let names = |replicas: &[&ReplicaSample]| -> Vec<String> {
            replicas
                .iter()
                .map(|replica| replica.name.clone())
                .collect()
        };
        let drain = names(ready.get(..excess).unwrap_or_default());
        let undrain: Vec<String> = draining
            .iter()
            .rev()
            .take(missing)
            .map(|replica| replica.name.clone())
            .collect();
        self.drained.extend(drain.iter().cloned());
        for name in &undrain {
            self.drained.remove(name);
        }
        let surplus = (ready.len() + draining.len()).saturating_sub(desired_len);
        RemovalPlan {
            donate: self.donations(now, &draining, surplus, donate_after),
            order: names(&ready),
            drained: self.drained.iter().cloned().collect(),
            drain,
            undrain,
            surplus: u32::try_from(surplus).unwrap_or(u32::MAX),
        }
    }

    /// Drained replicas without requests, once the surplus has lasted.
    fn donations(
        &mut self,
        now: Time,
        draining: &[&ReplicaSample],
        surplus: usize,
        donate_after: Duration,
    ) -> Vec<String> {
        if surplus == 0 {
            self.surplus_since = None;
            return Vec::new();
        }
        let since = Time::from_nanos(*self.surplus_since.get_or_insert(now.as_nanos()));
        if now.since(since) < donate_after {
            return Vec::new();
        }
        let empty = draining
            .iter()
            .filter(|replica| replica.outstanding == 0 && self.drained.contains(&replica.name));
        empty
            .take(surplus)
            .map(|replica| replica.name.clone())
            .collect()
    }
}

fn coldest_first<'a>(replicas: impl Iterator<Item = &'a ReplicaSample>) -> Vec<&'a ReplicaSample> {
    let mut replicas: Vec<&ReplicaSample> = replicas.collect();
    replicas.sort_by(|one, two| {
        let warmth = one.warmth_s.total_cmp(&two.warmth_s);
        warmth
            .then(one.outstanding.cmp(&two.outstanding))
            .then_with(|| one.name.cmp(&two.name))
    });
    replicas
}
