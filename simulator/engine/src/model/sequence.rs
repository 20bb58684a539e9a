//! A sequence: a request in the engine, its computed tokens and its blocks.

use std::sync::Arc;

use super::blocks::{BlockHash, BlockId, BlockPool};
use super::request::{AdapterId, Request, RequestId, Usage};
use core::time::Duration;

/// Index into the engine's table of sequences.
pub(super) type SequenceIndex = u32;

/// A request that waits or runs.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) adapter: Option<AdapterId>,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) generated: u32,
    /// Tokens whose keys and values are in the cache.
    pub(super) computed: u32,
    /// Found in the cache when it first started; `None` before that.
    pub(super) cached_tokens: Option<u32>,
    pub(super) preemptions: u32,
    pub(super) arrived_ns: u64,
    pub(super) started_ns: u64,
    /// When its first token was out.
    pub(super) first_token_ns: u64,
    /// No scheduling pass has looked at it yet.
    pub(super) unseen: bool,
    stream_interval: Option<u32>,
    streamed: u32,
    hashes: Arc<[BlockHash]>,
    pub(super) blocks: Vec<BlockId>,
    /// Leading blocks that are findable, or have no hash to be found by.
    named: u32,
}

impl Sequence {
    pub(super) fn new(request: Request, now_ns: u64) -> Self {
        Self {
            id: request.id,
            adapter: request.adapter,
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            generated: 0,
            computed: 0,
            cached_tokens: None,
            preemptions: 0,
            arrived_ns: now_ns,
            started_ns: now_ns,
            first_token_ns: now_ns,
            unseen: true,
            stream_interval: request.stream_interval_tokens.map(|tokens| tokens.max(1)),
            streamed: 0,
            hashes: request.blocks,
            blocks: Vec::new(),
            named: 0,
        }
    }

    /// Tokens that exist: the prompt, and what was generated.
    pub(super) fn total(&self) -> u32 {
        self.prompt_tokens + self.generated
    }

    /// Tokens still to be computed before the next one can be generated.
    pub(super) fn uncomputed(&self) -> u32 {
        self.total() - self.computed
    }

    /// Whether a step of one token is a decode step, not the tail of a prefill.
    pub(super) fn decodes(&self) -> bool {
        self.generated > 0 && self.uncomputed() == 1
    }

    /// Tokens until something must be told: the end, or the next streamed chunk.
    pub(super) fn tokens_to_event(&self) -> u32 {
        let end = self.output_tokens - self.generated;
        match self.stream_interval {
            Some(interval) => end.min(
                (self.streamed + interval)
                    .saturating_sub(self.generated)
                    .max(1),
            ),
            None => end,
        }
    }

    /// Notes that the tokens so far are told, if a chunk is due.
    pub(super) fn take_chunk(&mut self) -> bool {
        let due = self
            .stream_interval
            .is_some_and(|interval| self.generated >= self.streamed + interval);
        if due {
            self.streamed = self.generated;
        }
        due
    }

    /// Whether the first token is out and not told yet; notes that it is told.
    pub(super) fn take_first(&mut self) -> bool {
        let due = self.streamed == 0 && self.generated > 0;
        if due {
            self.streamed = self.generated;
        }
        due
    }

    /// The hashes that a start may look up: all that is known but the last token, which must be computed to get logits.
    pub(super) fn findable(&self, block_tokens: u32) -> &[BlockHash] {
        let blocks = (self.total().saturating_sub(1) / block_tokens) as usize;
        self.hashes.get(..blocks).unwrap_or(&self.hashes)
    }

    /// Holds what of this sequence is cached.
    pub(super) fn hold_prefix(&mut self, pool: &mut BlockPool, count: u32, block_tokens: u32) {
        debug_assert!(self.blocks.is_empty());
        let hashes = Arc::clone(&self.hashes);
        for &hash in hashes.iter().take(count as usize) {
            let Some(id) = pool.hold_cached(hash) else {
                break;
            };
            self.blocks.push(id);
        }
        self.named = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        self.computed = self.named * block_tokens;
    }

    /// Blocks missing for `tokens` computed tokens.
    pub(super) fn missing(&self, tokens: u32, block_tokens: u32) -> u32 {
        tokens
            .div_ceil(block_tokens)
            .saturating_sub(u32::try_from(self.blocks.len()).unwrap_or(u32::MAX))
    }

    /// Holds blocks for `tokens` computed tokens. Holds nothing, and says so, when the pool has too few.
    pub(super) fn grow(&mut self, pool: &mut BlockPool, tokens: u32, block_tokens: u32) -> bool {
        let missing = self.missing(tokens, block_tokens);
        if missing > pool.free() {
            return false;
        }
        self.blocks
            .extend((0..missing).map_while(|_| pool.hold_new()));
        true
    }

    /// Makes every block that is full with `tokens` computed tokens findable.
    pub(super) fn name(&mut self, pool: &mut BlockPool, tokens: u32, block_tokens: u32) {
        let full = tokens / block_tokens;
        while self.named < full {
            let index = self.named as usize;
            if let (Some(&id), Some(&hash)) = (self.blocks.get(index), self.hashes.get(index)) {
                pool.name(id, hash);
            }
            self.named += 1;
        }
    }

    /// Gives everything back and begins again.
    pub(super) fn preempt(&mut self, pool: &mut BlockPool) {
        pool.release(&mut self.blocks);
        self.computed = 0;
        self.named = 0;
        self.preemptions += 1;
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            cached_tokens: self.cached_tokens.unwrap_or(0),
            completion_tokens: self.generated,
            preemptions: self.preemptions,
            queued: Duration::from_nanos(self.started_ns.saturating_sub(self.arrived_ns)),
        }
    }
}
