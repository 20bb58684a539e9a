//! What is validated: a trace, a fleet, policies.

use std::path::PathBuf;

use clap::Args;
use isotherm_engine::fit::fits;
use isotherm_engine::model::Preset;
use isotherm_router::PolicyName;
use isotherm_simulator::workload::conversation::Conversation;
use isotherm_simulator::workload::replay::{Replay, ReplaySpeed};
use isotherm_simulator::workload::trace::Trace;
use isotherm_simulator::workload::{self};

use super::lone;
use crate::scenario::{Push, Scheme, speedup};

/// Replicas that the conversation trace keeps busy, and does not overload.
const REPLICAS: u16 = 4;
/// Slow enough that what this machine adds is small beside a prefill.
const SPEEDUP: f64 = 3.0;
/// DualMap's cut of the same trace: longer prompts would be few, and most of the work.
const INPUT_TOKENS_MAX: u32 = 20_480;

/// What is asked, on the command line.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// A trace in Mooncake's format, or of `isotherm record` [default: a synthetic twin of the public conversation trace]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// So many requests from its start; of fewer than a few hundred, medians are chance
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub requests: u32,
    /// How many times faster than life the engines answer, and the requests come
    #[arg(long, value_name = "X", default_value_t = SPEEDUP, value_parser = speedup)]
    pub speedup: f64,
    /// Longer prompts are cut here, tokens
    #[arg(long, value_name = "TOKENS", default_value_t = INPUT_TOKENS_MAX)]
    pub input_cap: u32,
    /// Engines
    #[arg(long, value_name = "N", default_value_t = REPLICAS, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// Model and hardware of the engines
    #[arg(long, value_name = "PRESET", default_value = "llama-3.1-8b-2xa100")]
    pub engine: Preset,
    /// Policies to validate (repeatable, or with commas)
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "isotherm"
    )]
    pub policy: Vec<PolicyName>,
    /// The mode of pushing
    #[arg(long, value_enum, default_value = "pending")]
    pub push: Push,
    /// What the synthetic trace is drawn from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The directory with the measurements that the engine's presets were fitted to
    #[arg(long, value_name = "DIRECTORY")]
    pub timings: Option<PathBuf>,
}

/// What both systems get.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) workload: workload::Workload,
    pub(super) lone: Vec<workload::Session>,
    pub(super) engine: Preset,
    pub(super) replicas: u16,
    pub(super) speed: f64,
    pub(super) seed: u64,
    pub(super) source: String,
}

impl Plan {
    pub(super) fn requests(&self) -> usize {
        self.workload.requests()
    }
}

impl Options {
    pub(super) fn schemes(&self) -> impl Iterator<Item = Scheme> + '_ {
        self.policy.iter().map(|policy| Scheme {
            policy: *policy,
            push: self.push,
        })
    }

    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let requests = self.requests as usize;
        let (trace, source) = match &self.trace {
            Some(path) => (
                Trace::open(path, Some(requests))?,
                path.display().to_string(),
            ),
            None => (
                Conversation::default().generate(self.seed),
                "the synthetic conversation trace".to_owned(),
            ),
        };
        let replay = Replay {
            pace: ReplaySpeed::SpeedUp(self.speedup),
            first: Some(requests),
            input_tokens_max: Some(self.input_cap),
            warmup_requests: 0,
        };
        let workload = replay.workload("trace", &trace);
        Ok(Plan {
            lone: lone::sessions(&workload),
            workload,
            engine: self.engine,
            replicas: self.replicas,
            speed: self.speedup,
            seed: self.seed,
            source,
        })
    }

    /// A line for each preset that the measurements can be compared with; or why there is none.
    pub(super) fn fits(&self) -> Vec<String> {
        let fits = match &self.timings {
            Some(directory) => fits(directory),
            None => Err("--timings names their directory".into()),
        };
        match fits {
            Ok(fits) => fits.iter().map(ToString::to_string).collect(),
            Err(problem) => vec![format!(
                "not compared with measurements, which are not part of the project ({problem}); what the presets were \
                 fitted to is said in simulator/engine/src/model/presets.rs"
            )],
        }
    }
}
