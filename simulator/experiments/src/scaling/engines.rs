//! The engines of SageServe's experiments, and how they are measured.

use std::sync::Arc;

use isotherm_engine::model::{Config, Preset};
use isotherm_simulator::scaling::calibrate::Calibration;
use isotherm_simulator::scaling::profile::Profile;

use crate::context::Context;

/// A model on its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Engine {
    BloomH100,
    BloomA100,
    Llama2H100,
    Llama2A100,
    Llama31,
    Llama32,
}

/// KV pool of Llama-2-70B in blocks, as Splitwise and SageServe account it: every head has its own keys and values, 2.62 MB a token.
/// With the model's grouped queries the pool is eight times as large, never fills, and the utilisation decides nothing.
const LLAMA2_BLOCKS: u32 = 10_000;
/// Llama-3.2-3B has 3.2 of the 8.0 billion parameters.
const LLAMA32_SPEED: f64 = 0.4;
/// Length of a level of load, s.
const LENGTH_S: [f64; 2] = [900.0, 150.0];

impl Engine {
    pub(crate) fn config(self) -> Config {
        match self {
            Self::BloomH100 => Preset::Bloom176bH100.config(),
            Self::BloomA100 => Preset::Bloom176bA100.config(),
            Self::Llama2H100 => llama2(Preset::Llama2_70bH100),
            Self::Llama2A100 => llama2(Preset::Llama2_70bA100),
            Self::Llama31 => Preset::Llama31_8b2xA100.config(),
            Self::Llama32 => {
                let config = Preset::Llama31_8b2xA100.config();
                Config {
                    timing: config.timing.slowed(LLAMA32_SPEED),
                    ..config
                }
            }
        }
    }
}

fn llama2(preset: Preset) -> Config {
    Config {
        blocks: LLAMA2_BLOCKS,
        ..preset.config()
    }
}

/// Measures engines, by requests through the routing core and the engine model.
pub(crate) fn profiles(context: &Context, engines: &[Engine]) -> Vec<Arc<Profile>> {
    let length_s = context.pick(LENGTH_S);
    let seed = context.first_seed();
    context.map(engines, |engine| {
        let calibration = Calibration {
            engine: engine.config(),
            length_s,
            seed,
        };
        Arc::new(calibration.run())
    })
}
