//! The prefix index: which target was sent which prefix (SkyLB 3.2, SGLang's approximate tree).
//!
//! A target is a replica, or a peer in the index over peers. A target that holds a prefix holds every shorter prefix, so a
//! search is a binary search over the chain of block hashes. Only leaves are evicted, in order of age.
//!
//! `docs/design/prefix-index.md` has the proofs and the rejected structures.

mod answers;
mod attach;
mod cached_share;
mod caches;
mod claims;
mod correct;
mod depths;
mod evict;
mod forget;
mod node;
mod order;
mod prefetch;
mod process;
mod recent;
mod search;
mod sessions;
mod shard;
mod slab;
mod stored;
mod table;
mod token_length;
mod unshared;

pub(crate) use answers::{AnswerKey, Answers};
pub(crate) use cached_share::CachedShare;
pub(crate) use caches::{Caches, index_limits};
use isotherm_fingerprint::BlockHash;
pub(crate) use sessions::Sessions;
pub(crate) use stored::StoredResponses;
pub(crate) use token_length::TokenLength;

use self::evict::{EVICTED_PER_EVENT_MAX, Excess};
use self::node::{Entry, Node, NodeId, Nodes, SPAN_BYTES};
use self::order::Order;
pub(crate) use self::order::Owner;
use self::prefetch::BLOCKS_AHEAD;
use self::slab::NONE;
use self::table::Table;
use crate::replica_index::{ReplicaIndex, ReplicaSet};
use crate::{Eviction, IndexLimits, IndexStats};

/// Accounted memory of a node, in bytes: the node, its place in the hash table, its share of free lists.
const NODE_BYTES: usize = 48;
/// Accounted memory of each entry of a node with several targets, in bytes: list header and slack included.
const SHARED_ENTRY_BYTES: usize = 40;

/// The longest prefix of a chain that the index, or one target, holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Length in blocks.
    pub depth: usize,
    node: Option<NodeId>,
}

impl PrefixMatch {
    const fn at(depth: usize, node: Option<NodeId>) -> Self {
        Self { depth, node }
    }
}

/// The index's belief about a target's cache when a request was sent to it. Corrections need it afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PredictionRecord {
    /// Blocks that the target was believed to hold.
    pub(crate) depth_before: usize,
    /// Last use of the deepest of these blocks, in ticks.
    pub(crate) used_before: u64,
    /// Use by this request, in ticks.
    pub(crate) stamp: u64,
    /// Tenant of the request.
    pub(crate) owner: Owner,
    /// Prompt length of the blocks that were new, in units of a node's span.
    pub(crate) added: u64,
}

#[derive(Debug)]
pub(crate) struct PrefixIndex {
    table: Table,
    nodes: Nodes,
    order: Order,
    limits: IndexLimits,
    tick: u64,
    evicted: u64,
    excess: Excess,
}

impl PrefixIndex {
    /// An empty index. The seed decides where entries lie in memory, and no decision depends on that.
    pub(crate) fn new(limits: IndexLimits, seed: u64) -> Self {
        Self {
            table: Table::new(seed),
            nodes: Nodes::default(),
            order: Order::default(),
            limits,
            tick: 0,
            evicted: 0,
            excess: Excess::default(),
        }
    }

    /// Allocates the index of a new target; `None` when all are in use.
    pub(crate) fn join(&mut self) -> Option<ReplicaIndex> {
        if let Some(slot) = self.order.allocate() {
            return Some(slot);
        }
        // Every index is in use, some by targets that left: finish purging one of these.
        let slot = self.order.retired()?;
        while self.evict_leaf_of(slot) {}
        self.order.allocate()
    }

    /// Retires a target. Its entries are removed little by little with later recordings; lookups do not name it any more.
    pub(crate) fn leave(&mut self, slot: ReplicaIndex) {
        self.order.retire(slot);
    }

    /// Targets of the set `among` that hold the matched prefix, in order.
    pub(crate) fn targets<'a>(
        &'a self,
        matched: &PrefixMatch,
        among: &'a ReplicaSet,
    ) -> impl Iterator<Item = ReplicaIndex> + 'a {
        self.all_targets(matched)
            .filter(|slot| among.contains(*slot))
    }

    /// Targets of the set `among` that hold the matched prefix, from one that `start` names on, and around.
    pub(crate) fn targets_from<'a>(
        &'a self,
        matched: &PrefixMatch,
        start: u64,
        among: &'a ReplicaSet,
    ) -> impl Iterator<Item = ReplicaIndex> + 'a {
        let nodes = matched.node.into_iter();
        let targets = nodes.flat_map(move |id| self.nodes.targets_from(id, start));
        targets.filter(|slot| among.contains(*slot))
    }

    /// All targets that hold the matched prefix, in order.
    pub(crate) fn all_targets(
        &self,
        matched: &PrefixMatch,
    ) -> impl Iterator<Item = ReplicaIndex> + '_ {
        let nodes = matched.node.into_iter();
        nodes.flat_map(|id| self.nodes.targets(id))
    }

    /// Prefetches what [`Self::record`] reads of this target.
    pub(crate) fn prefetch_target(&self, slot: ReplicaIndex) {
        self.order.prefetch(slot);
    }

    /// Records that a target was sent this prompt of the common tenant, of which it holds `matched`.
    pub(crate) fn record(
        &mut self,
        blocks: &[BlockHash],
        slot: ReplicaIndex,
        matched: &PrefixMatch,
    ) -> PredictionRecord {
        self.record_of(Owner::COMMON, blocks, slot, matched)
    }

    /// Records that a target has this prompt of a tenant, of which it held `matched`.
    pub(crate) fn record_of(
        &mut self,
        owner: Owner,
        blocks: &[BlockHash],
        slot: ReplicaIndex,
        matched: &PrefixMatch,
    ) -> PredictionRecord {
        let recorded = self.add(owner, blocks, slot, matched);
        self.enforce(slot);
        recorded
    }

    /// Records that a target was sent this prompt of a tenant, of which it holds `matched`. Until the target has computed the prompt, which
    /// [`Self::confirm`] tells, it evicts nothing for it: an engine may refuse the prompt.
    pub(crate) fn claim_of(
        &mut self,
        owner: Owner,
        blocks: &[BlockHash],
        slot: ReplicaIndex,
        matched: &PrefixMatch,
    ) -> PredictionRecord {
        let recorded = self.add(owner, blocks, slot, matched);
        self.order.claim(slot, recorded.added);
        self.enforce(slot);
        recorded
    }

    /// Ends a claim on a prompt that the target has computed.
    pub(crate) fn confirm(&mut self, slot: ReplicaIndex, recorded: &PredictionRecord) {
        if recorded.added > 0 {
            self.order.settle(slot, recorded.added);
            self.enforce(slot);
        }
    }

    /// Ends a claim on a prompt that the target has not computed. The caller retracts what it added.
    pub(crate) fn unclaim(&mut self, slot: ReplicaIndex, recorded: &PredictionRecord) {
        self.order.settle(slot, recorded.added);
    }

    fn add(
        &mut self,
        owner: Owner,
        blocks: &[BlockHash],
        slot: ReplicaIndex,
        matched: &PrefixMatch,
    ) -> PredictionRecord {
        self.purge();
        self.tick += 1;
        let stamp = self.tick;
        let start = matched.node.unwrap_or(NONE);
        let above = self.nodes.entry(start, slot);
        let used_before = above.map_or(0, |entry| entry.stamp);
        let (last, added) = self.extend(blocks, matched, slot, (stamp, owner));
        if last == start {
            self.touch(last, slot, (stamp, owner));
        }
        PredictionRecord {
            depth_before: matched.depth,
            used_before,
            stamp,
            owner,
            added,
        }
    }

    /// Sets a target's budget in bytes of prompt: the capacity of its KV cache.
    pub(crate) fn set_budget(&mut self, slot: ReplicaIndex, prompt_bytes: Option<u64>) {
        let units = prompt_bytes.map(|bytes| bytes / u64::from(SPAN_BYTES));
        self.order.set_budget(slot, units);
        self.enforce(slot);
    }

    /// Length of the prompts that the index holds for a target, in bytes.
    pub(crate) fn held_bytes(&self, slot: ReplicaIndex) -> u64 {
        self.order.held(slot).saturating_mul(u64::from(SPAN_BYTES))
    }

    /// Replaces the bounds, and begins to apply them.
    pub(crate) fn set_limits(&mut self, limits: IndexLimits) {
        self.limits = limits;
        self.enforce_bytes(EVICTED_PER_EVENT_MAX);
    }

    pub(crate) fn stats(&self) -> IndexStats {
        IndexStats {
            nodes: self.nodes.len(),
            entries: self.order.entries(),
            bytes: self.bytes(),
            evicted: self.evicted,
        }
    }

    fn bytes(&self) -> usize {
        self.nodes.len() * NODE_BYTES
            + self.nodes.shared_entries() * SHARED_ENTRY_BYTES
            + self.order.bytes()
    }

    /// Adds the rest of a chain for a target that holds its first `matched.depth` blocks. Returns the deepest node that the
    /// target holds then, and the units of a span that it has in addition.
    ///
    /// A forged chain may name one hash at two depths. The first parent of a node counts, and a chain that contradicts it is
    /// recorded up to that block only. The subset property holds for every input.
    fn extend(
        &mut self,
        blocks: &[BlockHash],
        matched: &PrefixMatch,
        slot: ReplicaIndex,
        (stamp, owner): (u64, Owner),
    ) -> (NodeId, u64) {
        let start = matched.node.unwrap_or(NONE);
        let (mut last, mut added, mut held) = (start, 0, 0);
        let mut end = end_of(blocks, matched.depth);
        // Every new node but the last one has one child; the last one is corrected below.
        let entry = |span| Entry {
            stamp,
            children: 1,
            slot,
            span,
        };
        let mut fork = self.nodes.fork_below(start, matched.depth);
        let new = blocks.get(matched.depth..).unwrap_or_default();
        'chain: for some in new.chunks(BLOCKS_AHEAD) {
            let keys = self.prefetch_new(some);
            for (block, key) in some.iter().zip(keys) {
                let span = span_units(block.end_bytes.saturating_sub(end));
                end = block.end_bytes;
                let create = |nodes: &mut Nodes| nodes.create(block.hash, last, entry(span), fork);
                let nodes = &mut self.nodes;
                let found = self.table.find_or_insert(key, block.hash, nodes, create);
                let Some((id, is_new)) = found else {
                    break 'chain;
                };
                let mut span = span;
                if !is_new {
                    let node = self.nodes.get(id).filter(|node| node.parent == last);
                    let Some(known) = node.map(Node::span) else {
                        break 'chain;
                    };
                    if self.nodes.add_entry(id, entry(known)).is_none() {
                        break 'chain;
                    }
                    fork = matched.depth + added + 1;
                    span = known;
                }
                last = id;
                added += 1;
                held += u64::from(span);
            }
        }
        if added == 0 {
            return (last, 0);
        }
        if let Some(leaf) = self.nodes.entry_mut(last, slot) {
            leaf.children = 0;
        }
        let extends_leaf = self.add_child(start, slot);
        self.order.added(slot, added, held, !extends_leaf);
        self.order.push(slot, (stamp, last, owner), &self.nodes);
        (last, held)
    }

    /// Counts a new child of a target's entry; returns whether the entry was a leaf.
    fn add_child(&mut self, id: NodeId, slot: ReplicaIndex) -> bool {
        self.nodes.entry_mut(id, slot).is_some_and(|entry| {
            entry.children += 1;
            entry.children == 1
        })
    }

    /// Stamps a target's prefix as used.
    fn touch(&mut self, id: NodeId, slot: ReplicaIndex, (stamp, owner): (u64, Owner)) {
        if self.limits.eviction == Eviction::Lru
            && let Some(entry) = self.nodes.entry_mut(id, slot)
        {
            entry.stamp = stamp;
            if entry.children == 0 {
                self.order.push(slot, (stamp, id, owner), &self.nodes);
            }
        }
    }
}

/// Prompt length up to the end of the first `depth` blocks, in bytes.
fn end_of(blocks: &[BlockHash], depth: usize) -> u32 {
    let last = depth.checked_sub(1).and_then(|at| blocks.get(at));
    last.map_or(0, |block| block.end_bytes)
}

fn span_units(bytes: u32) -> u16 {
    u16::try_from(bytes.div_ceil(SPAN_BYTES)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
