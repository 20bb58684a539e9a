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

use super::config::{AdapterConfig, BLOCK_TOKENS, Config};
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
    pub fn model(self) -> &'static str {
        match self {
            Self::Llama31_8bL4 | Self::Llama31_8b2xA100 => "llama-3.1-8b",
            Self::Llama2_70bA100 | Self::Llama2_70bH100 => "llama2-70b",
            Self::Bloom176bA100 | Self::Bloom176bH100 => "bloom-176b",
        }
    }

    /// The engine.
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
            adapters: AdapterConfig::default(),
            timing: self.timing(),
        }
    }

    /// The fitted coefficients in the order of [`StepCost`]'s fields. The unit of each is a thousand times that of its field;
    /// the knee (tokens) and the time of a token of context (ns) stand as they are.
    fn timing(self) -> StepCost {
        #[rustfmt::skip]
        let [floor, fixed, token, knee, past_knee, pair, base, sequence, past_knee_sequence, context] = match self {
            Self::Llama31_8bL4 => [63_000, 20_000, 546_000, 2_048, 0, 18_000, 63_000, 100, 0, 514],
            Self::Llama31_8b2xA100 => [23_057, 9_112, 37_230, 1_024, 25_855, 5_373, 8_450, 40, 0, 75],
            Self::Llama2_70bA100 => [65_733, 31_819, 119_923, 2_048, 117_913, 0, 44_382, 134, 250, 280],
            Self::Llama2_70bH100 => [54_436, 23_219, 52_942, 2_048, 53_259, 1_622, 29_958, 192, 69, 151],
            Self::Bloom176bA100 => [74_810, 49_914, 233_217, 2_048, 142_931, 22_740, 48_420, 348, 412, 346],
            Self::Bloom176bH100 => [48_371, 17_383, 112_454, 2_048, 56_368, 7_767, 35_838, 251, 244, 117],
        };
        StepCost {
            prefill_floor_ns: floor * 1_000,
            prefill_fixed_ns: fixed * 1_000,
            prefill_token_ps: token * 1_000,
            prefill_knee_tokens: knee,
            prefill_past_knee_token_ps: past_knee * 1_000,
            prefill_pair_fs: pair * 1_000,
            decode_base_ns: base * 1_000,
            decode_sequence_ns: sequence * 1_000,
            decode_past_knee_sequence_ns: past_knee_sequence * 1_000,
            decode_context_token_ns: context,
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
