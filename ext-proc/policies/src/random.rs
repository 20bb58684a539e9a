//! Baselines that choose at random, from a seed.
//!
//! `random` takes any replica. `power_of_two` takes the less loaded of two (Mitzenmacher), which balances nearly as well as
//! the least loaded of all, without sending everything to the same replica. A selection clones the generator, so that only a
//! dispatch takes its numbers.

use crate::load_score;
use isotherm_router::{
    Policy, PolicyEvent, Reason, ReplicaIndex, ReplicaSet, Request, Selection, View,
};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// Any replica.
#[derive(Debug)]
pub struct Random(Pcg64);

/// The less loaded of two replicas.
#[derive(Debug)]
pub struct PowerOfTwo(Pcg64);

impl Random {
    /// The policy with the random numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }
}

impl PowerOfTwo {
    /// The policy with the random numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }
}

impl Policy for Random {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let replica = pick(&mut self.0.clone(), view.candidates())?;
        Some(Selection::to(replica, Reason::Random, None))
    }

    /// All replicas are equal.
    fn score(&self, _request: &Request, _replica: ReplicaIndex, _view: &View<'_>) -> f64 {
        0.0
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        if let PolicyEvent::Dispatch(_) = event {
            self.0.next_u64();
        }
    }
}

impl Policy for PowerOfTwo {
    fn select_replica(&self, _request: &Request, view: &View<'_>) -> Option<Selection> {
        let mut rng = self.0.clone();
        let first = pick(&mut rng, view.candidates())?;
        let mut second = pick(&mut rng, view.candidates())?;
        if second == first {
            // Two different ones, where there are two.
            let next = ReplicaIndex(first.0.wrapping_add(1));
            second = view.candidates().next_round(next)?;
        }
        let replica = if view.rank(first) <= view.rank(second) {
            first
        } else {
            second
        };
        Some(Selection::to(replica, Reason::Random, None))
    }

    fn score(&self, _request: &Request, replica: ReplicaIndex, view: &View<'_>) -> f64 {
        load_score(view, replica)
    }

    fn on_event(&mut self, event: PolicyEvent<'_>) {
        if let PolicyEvent::Dispatch(_) = event {
            self.0.next_u64();
            self.0.next_u64();
        }
    }
}

/// Picks a member of the set, each with the same probability.
fn pick(rng: &mut Pcg64, from: &ReplicaSet) -> Option<ReplicaIndex> {
    let scaled = u128::from(rng.next_u64()) * from.len() as u128;
    from.nth(usize::try_from(scaled >> 64).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_is_picked_about_equally_often() {
        let mut set = ReplicaSet::default();
        for slot in [3, 64, 100, 900] {
            set.set(ReplicaIndex(slot), true);
        }
        let mut rng = Pcg64::seed_from_u64(1);
        let mut picked = [0; 1024];
        for _ in 0..4_000 {
            picked[pick(&mut rng, &set).unwrap().index()] += 1;
        }
        for slot in set.iter() {
            assert!((900..1_100).contains(&picked[slot.index()]));
        }
    }
}
