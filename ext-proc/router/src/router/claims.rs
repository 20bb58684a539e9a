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

use isotherm_fingerprint::{BlockHash, Fingerprint};

use super::Router;
use crate::ReplicaId;
use crate::index::PredictionRecord;
use crate::pool_state::InFlightRequest;
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
pub(super) struct Claims {
    orphans: BTreeMap<(ReplicaIndex, u64), OrphanClaim>,
}

impl Claims {
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

    /// Whether no ended request has left a claim.
    pub(super) fn is_empty(&self) -> bool {
        self.orphans.is_empty()
    }

    /// Confirms the claims on a prompt that a replica has computed.
    pub(super) fn confirm(&mut self, replica: ReplicaIndex, prompt: &Fingerprint) {
        self.remove_blocks(replica, prompt.blocks());
    }

    fn remove_blocks(&mut self, replica: ReplicaIndex, blocks: &[BlockHash]) {
        if self.orphans.is_empty() {
            return;
        }
        for block in blocks {
            self.orphans.remove(&(replica, block.hash));
        }
    }

    fn take(&mut self, replica: ReplicaIndex, hash: u64) -> Option<OrphanClaim> {
        self.orphans.remove(&(replica, hash))
    }
}

impl Router {
    /// Takes back the claims of a request whose replicas have computed nothing, or something else.
    #[inline(never)]
    pub(super) fn take_back_claims(&mut self, request: &InFlightRequest) {
        let fingerprint = &request.fingerprint;
        self.take_back(request.replica, fingerprint, &request.recorded);
        if let Some(prefill) = &request.prefill {
            self.take_back(prefill.replica, fingerprint, &prefill.recorded);
        }
    }

    /// Ends the claims of a request whose response has not begun, after what it added was taken back. `is_computed` says that it
    /// was not: the replica may hold the prompt.
    pub(super) fn end_claims(&mut self, request: &InFlightRequest, is_computed: bool) {
        if request.has_begun {
            return;
        }
        let pool = &mut self.pool;
        let prefill = request.prefill.as_ref();
        let prefill = prefill.map(|prefill| (prefill.replica, &prefill.recorded));
        for (replica, recorded) in [(request.replica, &request.recorded)]
            .into_iter()
            .chain(prefill)
        {
            match pool.replicas.slot_of(replica) {
                Some(slot) if is_computed => pool.index.confirm(slot, recorded),
                Some(slot) => pool.index.unclaim(slot, recorded),
                None => {}
            }
        }
    }

    /// Takes back what a dispatch recorded for a replica, and the orphans that only this request used.
    #[inline(never)]
    pub(super) fn take_back(
        &mut self,
        replica: ReplicaId,
        fingerprint: &Fingerprint,
        recorded: &PredictionRecord,
    ) {
        let Some(replica) = self.pool.replicas.slot_of(replica) else {
            return;
        };
        let (index, claims) = (&mut self.pool.index, &mut self.claims);
        let blocks = fingerprint.blocks();
        let mut depth = blocks.len();
        let mut claim = OrphanClaim {
            first_depth: recorded.depth_before,
            stamp: recorded.stamp,
        };
        let adds_nothing = claim.first_depth == depth;
        loop {
            let chain = blocks.get(..depth).unwrap_or_default();
            let last_use = |hash| claims.stamp_of(replica, hash).max(claim.stamp);
            let first_depth = claim.first_depth;
            if let Some(hash) =
                index.retract_down_to(chain, (replica, recorded.owner), first_depth, last_use)
            {
                claims.add(replica, hash, claim);
                return;
            }
            claims.remove_blocks(replica, chain.get(first_depth..).unwrap_or_default());
            depth = first_depth;
            let Some(deepest) = deepest_of(blocks, depth) else {
                return;
            };
            let orphan = claims.take(replica, deepest);
            let stamp = claim.stamp.max(orphan.map_or(0, |orphan| orphan.stamp));
            match orphan {
                Some(orphan) if orphan.first_depth < depth => {
                    claim = OrphanClaim { stamp, ..orphan };
                }
                // The request that added these blocks may still take them back, in spite of the later use.
                None if !adds_nothing => return,
                _ => {
                    let first_depth = depth;
                    claims.add(replica, deepest, OrphanClaim { first_depth, stamp });
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
