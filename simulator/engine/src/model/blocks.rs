//! The KV cache: a fixed pool of blocks, shared by prefix, evicted least recently used first.
//!
//! The shape is vLLM v1's block pool. A block is *held* while at least one running request uses it. When the last holder
//! lets go it joins the tail of the free list and keeps its content, so a later request with the same prefix can take it
//! back; a new block is taken from the head of that list, which forgets what the block held. The free list is a doubly
//! linked list threaded through the block table: taking a cached block out of its middle costs nothing, and no block ever
//! allocates.
//!
//! When several requests compute the same block at the same time, each keeps its copy, as in vLLM: all are findable, the
//! oldest copy is the one that is found, and the others outlive it.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Names the whole prefix up to and including one block: equal hashes mean equal content from the first token on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub u64);

/// Index of a block in the pool.
pub(crate) type BlockId = u32;

/// End of a list.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Block {
    /// Content of the block, when the block is full and findable.
    hash: Option<BlockHash>,
    /// The next copy of the same content.
    twin: u32,
    holders: u32,
    previous: u32,
    next: u32,
}

const EMPTY: Block = Block {
    hash: None,
    twin: NONE,
    holders: 0,
    previous: NONE,
    next: NONE,
};

/// The pool of KV blocks of one engine.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    /// The oldest copy of each content; the other copies follow as its twins. No code iterates over the map, so its order does
    /// not affect a run.
    cached: HashMap<BlockHash, BlockId, FixedState>,
    head: u32,
    tail: u32,
    free: u32,
}

impl BlockPool {
    /// A pool of `count` empty blocks.
    pub fn new(count: u32) -> Self {
        let mut pool = Self {
            blocks: vec![EMPTY; count as usize],
            cached: HashMap::default(),
            head: NONE,
            tail: NONE,
            free: 0,
        };
        for id in 0..count {
            pool.push_free(id);
        }
        pool
    }

    /// Blocks in total.
    pub fn count(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    /// Blocks without a holder: empty blocks, and cached blocks that an allocation may evict.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Different contents that can be found, held or not.
    pub fn cached(&self) -> usize {
        self.cached.len()
    }

    /// Number of leading `hashes` in the pool, and how many of these blocks are free (holding them would use up a free
    /// block each).
    pub(crate) fn matched(&self, hashes: &[BlockHash]) -> BlockMatch {
        let mut matched = BlockMatch::default();
        for hash in hashes {
            let Some(&id) = self.cached.get(hash) else {
                break;
            };
            matched.blocks += 1;
            if self.block(id).is_some_and(|block| block.holders == 0) {
                matched.free += 1;
            }
        }
        matched
    }

    /// Holds the block with this content, if it is there.
    pub(crate) fn hold_cached(&mut self, hash: BlockHash) -> Option<BlockId> {
        let id = *self.cached.get(&hash)?;
        if self.block(id)?.holders == 0 {
            self.unlink_free(id);
        }
        self.block_mut(id)?.holders += 1;
        Some(id)
    }

    /// Holds the least recently used free block, forgetting its content. `None` when every block is held.
    pub(crate) fn hold_new(&mut self) -> Option<BlockId> {
        let id = self.head;
        self.block(id)?;
        self.unlink_free(id);
        self.forget(id);
        self.block_mut(id)?.holders = 1;
        Some(id)
    }

    /// Makes a held block that has just become full findable.
    pub(crate) fn name(&mut self, id: BlockId, hash: BlockHash) {
        if let Some(block) = self.block_mut(id) {
            block.hash = Some(hash);
        }
        let Some(&oldest) = self.cached.get(&hash) else {
            self.cached.insert(hash, id);
            return;
        };
        let last = self.last_copy_before(oldest, NONE);
        if let Some(block) = self.block_mut(last) {
            block.twin = id;
        }
    }

    /// Lets go of a request's blocks. The deepest goes to the free list first, so that a prefix is never forgotten before
    /// what builds on it.
    pub(crate) fn release(&mut self, ids: &mut Vec<BlockId>) {
        while let Some(id) = ids.pop() {
            let Some(block) = self.block_mut(id) else {
                continue;
            };
            block.holders = block.holders.saturating_sub(1);
            if block.holders == 0 {
                self.push_free(id);
            }
        }
    }

    /// Makes a block unfindable; another copy of its content takes its place.
    fn forget(&mut self, id: BlockId) {
        let Some(block) = self.block_mut(id) else {
            return;
        };
        let twin = core::mem::replace(&mut block.twin, NONE);
        let Some(hash) = block.hash.take() else {
            return;
        };
        let Some(&oldest) = self.cached.get(&hash) else {
            return;
        };
        if oldest != id {
            let before = self.last_copy_before(oldest, id);
            if let Some(block) = self.block_mut(before) {
                block.twin = twin;
            }
        } else if twin == NONE {
            self.cached.remove(&hash);
        } else {
            self.cached.insert(hash, twin);
        }
    }

    /// The last copy, from `copy` on, whose twin is `id` or that has no twin.
    fn last_copy_before(&self, mut copy: BlockId, id: BlockId) -> BlockId {
        while let Some(block) = self
            .block(copy)
            .filter(|block| ![NONE, id].contains(&block.twin))
        {
            copy = block.twin;
        }
        copy
    }

    fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id as usize)
    }

    fn block_mut(&mut self, id: BlockId) -> Option<&mut Block> {
        self.blocks.get_mut(id as usize)
    }

    fn push_free(&mut self, id: BlockId) {
        let tail = self.tail;
        if let Some(block) = self.block_mut(id) {
            block.previous = tail;
            block.next = NONE;
        }
        match self.block_mut(tail) {
            Some(last) => last.next = id,
            None => self.head = id,
        }
        self.tail = id;
        self.free += 1;
    }

    fn unlink_free(&mut self, id: BlockId) {
        let Some(&Block { previous, next, .. }) = self.block(id) else {
            return;
        };
        match self.block_mut(previous) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match self.block_mut(next) {
            Some(after) => after.previous = previous,
            None => self.tail = previous,
        }
        self.free -= 1;
    }
}

/// Result of [`BlockPool::matched`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockMatch {
    /// Leading blocks that are cached.
    pub(crate) blocks: u32,
    /// Matched blocks without a holder.
    pub(crate) free: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(ids: &[u64]) -> Vec<BlockHash> {
        ids.iter().copied().map(BlockHash).collect()
    }

    fn fill(pool: &mut BlockPool, hashes: &[BlockHash]) -> Vec<BlockId> {
        hashes
            .iter()
            .map(|&hash| {
                let id = pool.hold_new().unwrap();
                pool.name(id, hash);
                id
            })
            .collect()
    }

    #[test]
    fn released_content_is_found_again() {
        let mut pool = BlockPool::new(4);
        let prefix = chain(&[1, 2]);
        let mut held = fill(&mut pool, &prefix);
        assert_eq!(pool.matched(&prefix), BlockMatch { blocks: 2, free: 0 });
        pool.release(&mut held);
        assert_eq!(pool.free(), 4);
        assert_eq!(pool.matched(&prefix), BlockMatch { blocks: 2, free: 2 });
        assert!(pool.hold_cached(BlockHash(1)).is_some());
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn eviction_takes_the_least_recently_used_block_and_the_deepest_first() {
        let mut pool = BlockPool::new(4);
        let mut old = fill(&mut pool, &chain(&[1, 2]));
        let mut new = fill(&mut pool, &chain(&[3, 4]));
        pool.release(&mut old);
        pool.release(&mut new);
        pool.hold_new().unwrap();
        assert_eq!(pool.matched(&chain(&[1, 2])).blocks, 1, "2 went, 1 stayed");
        pool.hold_new().unwrap();
        assert_eq!(pool.matched(&chain(&[1, 2])).blocks, 0);
        assert_eq!(pool.matched(&chain(&[3, 4])).blocks, 2);
    }

    #[test]
    fn a_full_pool_allocates_no_block() {
        let mut pool = BlockPool::new(1);
        assert!(pool.hold_new().is_some());
        assert!(pool.hold_new().is_none());
    }

    #[test]
    fn copies_of_a_block_outlive_the_cached_one() {
        let mut pool = BlockPool::new(3);
        let mut copies: Vec<Vec<BlockId>> = (0..3).map(|_| fill(&mut pool, &chain(&[5]))).collect();
        for copy in &mut copies {
            pool.release(copy);
        }
        assert_eq!(pool.hold_cached(BlockHash(5)), Some(0), "the oldest");
        pool.release(&mut vec![0]);
        // The middle copy goes first, then the last, then the one that was used since.
        for left in [2, 1, 0] {
            assert_eq!(pool.matched(&chain(&[5])).blocks, 1, "{left} other copies");
            pool.hold_new().unwrap();
        }
        assert_eq!(pool.matched(&chain(&[5])).blocks, 0);
        assert_eq!(pool.cached(), 0);
    }

    #[test]
    fn a_shared_block_is_free_when_both_holders_release_it() {
        let mut pool = BlockPool::new(2);
        let mut first = fill(&mut pool, &chain(&[9]));
        let mut second = vec![pool.hold_cached(BlockHash(9)).unwrap()];
        pool.release(&mut first);
        assert_eq!(pool.free(), 1);
        pool.release(&mut second);
        assert_eq!(pool.free(), 2);
    }
}
