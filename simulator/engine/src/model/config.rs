//! The size of one engine.

use super::timing::StepCost;

/// Tokens in a KV block; vLLM's default on GPUs.
pub const BLOCK_TOKENS: u32 = 16;

/// Slots for adapters, and the time of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdapterConfig {
    /// Adapters in one step at most (vLLM: `max_loras`).
    pub slots: u32,
    /// Time to load an adapter, ns.
    pub load_ns: u64,
}

impl Default for AdapterConfig {
    /// vLLM's number of slots.
    fn default() -> Self {
        Self {
            slots: 1,
            load_ns: 0,
        }
    }
}

/// Capacity and speed of an engine. [`super::presets`] has measured configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// KV blocks in the pool.
    pub blocks: u32,
    /// Tokens in a block.
    pub block_tokens: u32,
    /// Tokens computed in one step at most (vLLM: `max_num_batched_tokens`).
    pub step_tokens_max: u32,
    /// Requests that run at once at most (vLLM: `max_num_seqs`).
    pub sequences_max: u32,
    /// Prompt and output of one request at most, tokens (vLLM: `max_model_len`). What the pool cannot hold lowers it.
    pub context_tokens_max: u32,
    /// Requests that wait at most; more are rejected.
    pub waiting_max: usize,
    /// Slots for adapters.
    pub adapters: AdapterConfig,
    /// Duration of steps.
    pub timing: StepCost,
}

impl Config {
    /// The longest request that the engine takes, tokens.
    pub fn request_tokens_max(&self) -> u32 {
        self.context_tokens_max
            .min(self.blocks.saturating_mul(self.block_tokens))
    }

    /// This configuration with every zero that would stop the engine raised to one.
    pub(super) fn usable(mut self) -> Self {
        self.blocks = self.blocks.max(1);
        self.block_tokens = self.block_tokens.max(1);
        self.step_tokens_max = self.step_tokens_max.max(1);
        self.sequences_max = self.sequences_max.max(1);
        self.adapters.slots = self.adapters.slots.max(1);
        self.timing.decode_base_ns = self.timing.decode_base_ns.max(1);
        self.timing.prefill_floor_ns = self.timing.prefill_floor_ns.max(1);
        self
    }
}
