//! Options of a validation: a trace, replicas, policies.

use std::path::PathBuf;

use clap::Args;
use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;
use isotherm_simulator::workload::conversation;
use isotherm_simulator::workload::replay::{PlaybackRate, Replay};
use isotherm_simulator::workload::trace::Trace;
use isotherm_simulator::workload::{Session, Workload};

use super::unloaded;
use crate::report::ScenarioSummary;
use crate::scenario::{Push, Scheme, speedup};

/// Replicas that the conversation trace does not overload.
const REPLICAS: u16 = 4;
/// Speed at which the delay of this machine is small compared with a prefill.
const SPEEDUP: f64 = 3.0;
/// DualMap's bound for the same trace: the few longer prompts would be most of the work.
const INPUT_TOKENS_MAX: u32 = 20_480;

/// Command-line options of a validation.
#[derive(Args, Clone, Debug)]
pub struct ValidateOptions {
    /// A trace in Mooncake's format, or of `isotherm record` [default: a synthetic twin of the public conversation trace]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Requests from the start of the trace; medians need a few hundred
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub requests: u32,
    /// Factor by which engines and arrivals are faster than real time
    #[arg(long, value_name = "X", default_value_t = SPEEDUP, value_parser = speedup)]
    pub speedup: f64,
    /// Length at which prompts are cut, tokens
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
    /// Push mode
    #[arg(long, value_enum, default_value = "pending")]
    pub push: Push,
    /// Seed of the synthetic trace
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

/// The input of both systems.
#[derive(Clone, Debug)]
pub(super) struct ValidationPlan {
    pub(super) options: ValidateOptions,
    pub(super) workload: Workload,
    pub(super) unloaded: Vec<Session>,
    source: String,
}

impl ValidationPlan {
    pub(super) fn summary(&self) -> ScenarioSummary {
        let (options, requests) = (&self.options, self.workload.requests());
        let last = self.workload.sessions.last();
        let span_s = last.map_or(0.0, |session| session.starts.as_secs_f64()) * options.speedup;
        ScenarioSummary {
            name: "validation".into(),
            description: format!(
                "{requests} requests of {}, {span_s:.0} s of it replayed {} times as fast",
                self.source, options.speedup,
            ),
            requests,
            replicas: usize::from(options.replicas),
            engine: options.engine.name().into(),
            speed: options.speedup,
            engines_per_replica: 1,
            seed: options.seed,
        }
    }
}

impl ValidateOptions {
    pub(super) fn schemes(&self) -> impl Iterator<Item = Scheme> + '_ {
        self.policy.iter().map(|policy| Scheme {
            policy: *policy,
            push: self.push,
        })
    }

    pub(super) fn plan(&self) -> anyhow::Result<ValidationPlan> {
        let requests = self.requests as usize;
        let (trace, source) = match &self.trace {
            Some(path) => {
                let trace = Trace::open(path, Some(requests))?;
                (trace, path.display().to_string())
            }
            None => {
                let trace = conversation::generate(conversation::HOUR_S, self.seed);
                (trace, "the synthetic conversation trace".to_owned())
            }
        };
        let replay = Replay {
            pace: PlaybackRate::SpeedUp(self.speedup),
            first: Some(requests),
            input_tokens_max: Some(self.input_cap),
            warmup_requests: 0,
        };
        let workload = replay.workload("trace", &trace);
        Ok(ValidationPlan {
            unloaded: unloaded::sessions(&workload),
            workload,
            options: self.clone(),
            source,
        })
    }
}
