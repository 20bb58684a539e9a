//! Placements for the siblings, so that the indexes of one region's services agree, and each of them counts the requests
//! that the others sent.
//!
//! A placement holds the new blocks of a prompt and the last known block in front of them. It is advice: a lost placement
//! costs at most a cache hit, since the next request of the conversation brings its whole chain. A request that fails
//! later is not reported; each service corrects its own index by its own requests.

use std::collections::VecDeque;

use isotherm_fingerprint::BlockHash;

use crate::{Placement, Target};

/// Limit of queued placements.
const PLACEMENTS_MAX: usize = 4_096;

/// Placements that the driver has not taken yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PlacementQueue(VecDeque<Placement>);

impl PlacementQueue {
    /// Adds the placement of a prompt on a target that is known to hold the first `depth` blocks. Returns whether the oldest
    /// placement was dropped for it.
    pub(crate) fn push(&mut self, target: Target, blocks: &[BlockHash], depth: usize) -> bool {
        let (known, new) = blocks.split_at_checked(depth).unwrap_or((&[], blocks));
        let is_full = self.0.len() >= PLACEMENTS_MAX;
        if is_full {
            self.0.pop_front();
        }
        self.0.push_back(Placement {
            target,
            parent: known.last().copied(),
            blocks: new.into(),
        });
        is_full
    }

    pub(crate) fn pop(&mut self) -> Option<Placement> {
        self.0.pop_front()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
