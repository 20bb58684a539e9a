//! Claims on a replica's cache: a dispatch records a prompt in the index before the replica has computed it.
//!
//! A request that ends before the first byte of its response, by abort, refusal or failure, takes its claim back. Otherwise a
//! client could record any prompt at no cost: the claims would take the place of prompts that are cached, and the failed
//! predictions would correct the index. A claim that another request uses stays while that request lives. It is then an
//! *orphan*: the last request that uses it takes it back, too, unless one of them begins its response.
//!
//! Where a gateway does not show responses, an abort tells nothing, and the claim stays.
//!
//! Rejected: counting the users of each block, which costs every recording memory and time for the sake of rare aborts.

use std::collections::BTreeMap;

use isotherm_fingerprint::BlockHash;

use super::{PredictionRecord, PrefixIndex};
use crate::replica_index::ReplicaIndex;

/// Limit of orphans. One orphan beyond the limit replaces another, whose claim stays.
const ORPHANS_MAX: usize = 1_024;

/// A claim of a request that has ended, on blocks that another request uses.
#[derive(Clone, Copy, Debug)]
struct OrphanClaim {
    /// The depth above which the ended request, or one before it, added the blocks.
    first_depth: usize,
    /// The last use by an ended request, in ticks.
    stamp: u64,
}

/// Orphans, each by its replica and its deepest block.
#[derive(Debug, Default)]
pub(crate) struct OrphanClaims {
    orphans: BTreeMap<(ReplicaIndex, u64), OrphanClaim>,
}

impl OrphanClaims {
    /// Forgets what a removed replica held.
    pub(super) fn remove(&mut self, replica: ReplicaIndex) {
        self.orphans.retain(|(index, _), _| *index != replica);
    }

    /// The last use of a block by an ended request.
    fn stamp_of(&self, replica: ReplicaIndex, hash: u64) -> u64 {
        let orphan = self.orphans.get(&(replica, hash));
        orphan.map_or(0, |orphan| orphan.stamp)
    }

    fn add(&mut self, replica: ReplicaIndex, hash: u64, claim: OrphanClaim) {
        if self.orphans.len() >= ORPHANS_MAX {
            self.orphans.pop_first();
        }
        let orphan = self.orphans.entry((replica, hash)).or_insert(claim);
        orphan.first_depth = orphan.first_depth.min(claim.first_depth);
        orphan.stamp = orphan.stamp.max(claim.stamp);
    }

    /// Removes the orphans of a prompt.
    pub(crate) fn remove_blocks(&mut self, replica: ReplicaIndex, blocks: &[BlockHash]) {
        if self.orphans.is_empty() {
            return;
        }
        for block in blocks {
            self.orphans.remove(&(replica, block.hash));
        }
    }

    /// Takes back what a dispatch recorded for a replica, and the orphans that only this request used.
    #[inline(never)]
    pub(super) fn take_back(
        &mut self,
        index: &mut PrefixIndex,
        replica: ReplicaIndex,
        blocks: &[BlockHash],
        recorded: &PredictionRecord,
    ) {
        let mut depth = blocks.len();
        let mut claim = OrphanClaim {
            first_depth: recorded.depth_before,
            stamp: recorded.stamp,
        };
        let adds_nothing = claim.first_depth == depth;
        loop {
            let chain = blocks.get(..depth).unwrap_or_default();
            let last_use = |hash| self.stamp_of(replica, hash).max(claim.stamp);
            let first_depth = claim.first_depth;
            if let Some(hash) =
                index.retract_down_to(chain, (replica, recorded.owner), first_depth, last_use)
            {
                self.add(replica, hash, claim);
                return;
            }
            self.remove_blocks(replica, chain.get(first_depth..).unwrap_or_default());
            depth = first_depth;
            let Some(deepest) = deepest_of(blocks, depth) else {
                return;
            };
            let orphan = self.orphans.remove(&(replica, deepest));
            let stamp = claim.stamp.max(orphan.map_or(0, |orphan| orphan.stamp));
            match orphan {
                Some(orphan) if orphan.first_depth < depth => {
                    claim = OrphanClaim { stamp, ..orphan };
                }
                // The request that added these blocks may still take them back, in spite of the later use.
                None if !adds_nothing => return,
                _ => {
                    let first_depth = depth;
                    self.add(replica, deepest, OrphanClaim { first_depth, stamp });
                    return;
                }
            }
        }
    }
}

fn deepest_of(blocks: &[BlockHash], depth: usize) -> Option<u64> {
    let block = blocks.get(depth.checked_sub(1)?)?;
    Some(block.hash)
}
