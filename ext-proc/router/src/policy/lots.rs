//! Lots, drawn from a seed: looking at the next lot does not draw it.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::slots::{Slot, SlotSet};

/// A sequence of lots.
#[derive(Clone, Debug)]
pub(super) struct Lots(Pcg64);

impl Lots {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// One of the set, all equally likely.
    pub(super) fn draw(&mut self, from: &SlotSet) -> Option<Slot> {
        let scaled = u128::from(self.0.next_u64()) * from.len() as u128;
        from.nth(usize::try_from(scaled >> 64).ok()?)
    }

    /// Moves on by one lot.
    pub(super) fn advance(&mut self) {
        self.0.next_u64();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_drawn_about_equally_often() {
        let mut set = SlotSet::default();
        for slot in [3, 64, 100, 900] {
            set.set(Slot(slot), true);
        }
        let mut lots = Lots::new(1);
        let mut drawn = [0; 1024];
        for _ in 0..4_000 {
            drawn[lots.draw(&set).unwrap().index()] += 1;
        }
        for slot in set.iter() {
            assert!((900..1_100).contains(&drawn[slot.index()]));
        }
    }
}
