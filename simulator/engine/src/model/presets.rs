//! Engines that exist: a model on a GPU, with its measured speed and its room for KV blocks.
//!
//! The coefficients of all but the L4 were fitted to published measurements (mean of the relative errors plus a little of
//! the largest for prefill, relative least squares for decode). The errors below are means over the set-ups of the measurements,
//! each run through the whole model; the measurements are not part of the project. Sources:
//!
//! - Llama-2-70B and BLOOM-176B on 8 x A100-80GB and 8 x H100-80GB: Splitwise (Patel et al., ISCA 2024), MIT licence. The
//!   whole batch of prompts was computed in one step there, so these engines have a budget of 8,192 tokens a step.
//! - Llama-3.1-8B on 2 x A100-80GB: SageServe, MIT licence. Its time to the first token is the same from batch 2 to 32, that
//!   of 1,024 tokens, so that engine's budget was 1,024. Left out: sequences past 8,192 tokens, where each token suddenly
//!   takes twice as long (CUDA graphs ended there in the vLLM of the time; they no longer do).
//! - Llama-3.1-8B on one L4: derived. A decode step reads 16.06 GB of weights at 300 GB/s, of which engines reach about
//!   85 %: 63 ms. A token of context is 128 KiB of keys and values: 0.51 us. Prefill is set so that 512 tokens take the 300 ms
//!   that SkyLB reports (section 2.1): 1,830 tokens/s, 29 of the 121 TFLOPS of the data sheet (the L4 is a 72 W part).
//!   Attention is 0.52 MFLOP a pair at that rate. With 24.1 GB, 90 % used, less weights and 1.2 GB of activations, 4.4 GB hold
//!   33,900 tokens: the 20 to 50 outstanding requests that the paper saw fit.
//!
//! KV pools elsewhere: 90 % of the memory, less the weights and 2 GB a GPU, by the bytes of keys and values a token has.
//! Context lengths are those of the long-context successors where the pool allows, so that real traces can be replayed.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use super::config::{BLOCK_TOKENS, Config};
use super::timing::StepCost;

/// Requests that wait at most, by default.
pub const WAITING_MAX: usize = 100_000;

/// A model on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// Llama-3.1-8B on one L4: the replica of the SkyLB paper.
    Llama31_8bL4,
    /// Llama-3.1-8B on two A100-80GB. Error: prefill 2.8 %, decode 0.9 %.
    Llama31_8b2xA100,
    /// Llama-2-70B on eight A100-80GB. Error: prefill 4.0 %, decode 1.3 %.
    Llama2_70bA100,
    /// Llama-2-70B on eight H100-80GB. Error: prefill 2.9 %, decode 1.7 %.
    Llama2_70bH100,
    /// BLOOM-176B on eight A100-80GB. Error: prefill 3.9 %, decode 0.8 %.
    Bloom176bA100,
    /// BLOOM-176B on eight H100-80GB. Error: prefill 2.4 %, decode 1.1 %.
    Bloom176bH100,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 6] = [
        Self::Llama31_8bL4,
        Self::Llama31_8b2xA100,
        Self::Llama2_70bA100,
        Self::Llama2_70bH100,
        Self::Bloom176bA100,
        Self::Bloom176bH100,
    ];

    /// Name of the preset on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama31_8bL4 => "llama-3.1-8b-l4",
            Self::Llama31_8b2xA100 => "llama-3.1-8b-2xa100",
            Self::Llama2_70bA100 => "llama2-70b-a100",
            Self::Llama2_70bH100 => "llama2-70b-h100",
            Self::Bloom176bA100 => "bloom-176b-a100",
            Self::Bloom176bH100 => "bloom-176b-h100",
        }
    }

    /// The model that it runs, as users would name it.
    #[must_use]
    pub fn model(self) -> &'static str {
        match self {
            Self::Llama31_8bL4 | Self::Llama31_8b2xA100 => "llama-3.1-8b",
            Self::Llama2_70bA100 | Self::Llama2_70bH100 => "llama2-70b",
            Self::Bloom176bA100 | Self::Bloom176bH100 => "bloom-176b",
        }
    }

    /// The engine.
    #[must_use]
    pub fn config(self) -> Config {
        let (blocks, step_tokens_max, context_tokens_max) = match self {
            Self::Llama31_8bL4 => (2_120, 2_048, 32_768),
            Self::Llama31_8b2xA100 => (59_000, 1_024, 131_072),
            Self::Llama2_70bA100 | Self::Llama2_70bH100 => (80_500, 8_192, 131_072),
            Self::Bloom176bA100 | Self::Bloom176bH100 => (3_240, 8_192, 32_768),
        };
        Config {
            blocks,
            block_tokens: BLOCK_TOKENS,
            step_tokens_max,
            sequences_max: 256,
            context_tokens_max,
            waiting_max: WAITING_MAX,
            timing: self.timing(),
        }
    }

    fn timing(self) -> StepCost {
        match self {
            Self::Llama31_8bL4 => StepCost {
                prefill_floor_ns: 63_000_000,
                prefill_fixed_ns: 20_000_000,
                prefill_token_ps: 546_000_000,
                prefill_knee_tokens: 2_048,
                prefill_past_knee_token_ps: 0,
                prefill_pair_fs: 18_000_000,
                decode_base_ns: 63_000_000,
                decode_sequence_ns: 100_000,
                decode_past_knee_sequence_ns: 0,
                decode_context_token_ns: 514,
            },
            Self::Llama31_8b2xA100 => StepCost {
                prefill_floor_ns: 23_057_000,
                prefill_fixed_ns: 9_112_000,
                prefill_token_ps: 37_230_000,
                prefill_knee_tokens: 1_024,
                prefill_past_knee_token_ps: 25_855_000,
                prefill_pair_fs: 5_373_000,
                decode_base_ns: 8_450_000,
                decode_sequence_ns: 40_000,
                decode_past_knee_sequence_ns: 0,
                decode_context_token_ns: 75,
            },
            Self::Llama2_70bA100 => StepCost {
                prefill_floor_ns: 65_733_000,
                prefill_fixed_ns: 31_819_000,
                prefill_token_ps: 119_923_000,
                prefill_knee_tokens: 2_048,
                prefill_past_knee_token_ps: 117_913_000,
                prefill_pair_fs: 0,
                decode_base_ns: 44_382_000,
                decode_sequence_ns: 134_000,
                decode_past_knee_sequence_ns: 250_000,
                decode_context_token_ns: 280,
            },
            Self::Llama2_70bH100 => StepCost {
                prefill_floor_ns: 54_436_000,
                prefill_fixed_ns: 23_219_000,
                prefill_token_ps: 52_942_000,
                prefill_knee_tokens: 2_048,
                prefill_past_knee_token_ps: 53_259_000,
                prefill_pair_fs: 1_622_000,
                decode_base_ns: 29_958_000,
                decode_sequence_ns: 192_000,
                decode_past_knee_sequence_ns: 69_000,
                decode_context_token_ns: 151,
            },
            Self::Bloom176bA100 => StepCost {
                prefill_floor_ns: 74_810_000,
                prefill_fixed_ns: 49_914_000,
                prefill_token_ps: 233_217_000,
                prefill_knee_tokens: 2_048,
                prefill_past_knee_token_ps: 142_931_000,
                prefill_pair_fs: 22_740_000,
                decode_base_ns: 48_420_000,
                decode_sequence_ns: 348_000,
                decode_past_knee_sequence_ns: 412_000,
                decode_context_token_ns: 346,
            },
            Self::Bloom176bH100 => StepCost {
                prefill_floor_ns: 48_371_000,
                prefill_fixed_ns: 17_383_000,
                prefill_token_ps: 112_454_000,
                prefill_knee_tokens: 2_048,
                prefill_past_knee_token_ps: 56_368_000,
                prefill_pair_fs: 7_767_000,
                decode_base_ns: 35_838_000,
                decode_sequence_ns: 251_000,
                decode_past_knee_sequence_ns: 244_000,
                decode_context_token_ns: 117,
            },
        }
    }
}

impl core::fmt::Display for Preset {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl ValueEnum for Preset {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}
