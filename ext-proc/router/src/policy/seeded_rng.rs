//! Random numbers from a seed. A policy clones the generator to look at the next number without taking it.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::replica_index::{ReplicaIndex, ReplicaSet};

/// A reproducible sequence of random numbers.
#[derive(Clone, Debug)]
pub(super) struct SeededRng(Pcg64);

impl SeededRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// Picks a member of the set, each with the same probability.
    pub(super) fn pick(&mut self, from: &ReplicaSet) -> Option<ReplicaIndex> {
        let scaled = u128::from(self.0.next_u64()) * from.len() as u128;
        from.nth(usize::try_from(scaled >> 64).ok()?)
    }

    /// Skips one number.
    pub(super) fn advance(&mut self) {
        self.0.next_u64();
    }
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
        let mut rng = SeededRng::new(1);
        let mut picked = [0; 1024];
        for _ in 0..4_000 {
            picked[rng.pick(&set).unwrap().index()] += 1;
        }
        for slot in set.iter() {
            assert!((900..1_100).contains(&picked[slot.index()]));
        }
    }
}
