//! The scenario of a demo: a workload, its engines, and the schemes to compare.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use isotherm_harness::{EngineOptions, MODEL, Pool};
use isotherm_router::PolicyName;
use isotherm_simulator::workload::trace::Trace;

use crate::report::ScenarioSummary;
use crate::workload::{MultiTurn, Workload};

/// A chat on small GPUs goes this many times faster than life, unless told otherwise: slow enough that two cores have
/// time to spare, fast enough that three runs take two minutes.
const CHAT_SPEEDUP: f64 = 10.0;
const TRACE_SPEEDUP: f64 = 10.0;
/// The recorded traces come from clusters larger than a demo, so each replica stands for three engines: as fast as
/// three together, with the room of three for KV blocks (59,000 is one's).
const TRACE_ENGINES: f64 = 3.0;
const TRACE_KV_BLOCKS: u32 = 3 * 59_000;
const TRACE_REQUESTS: usize = 1_000;
/// A probe every 100 ms is the default of the service; at ten times the speed of life that is a second of life.
const PROBE_INTERVAL_MS: u64 = 25;

/// SkyLB's own, since it is SkyLB's claim about regions that their demo shows. With `isotherm` regions keep their
/// caches warmer, and forwarding gains less.
const POLICY_OF_REGIONS: PolicyName = PolicyName::PrefixTree;

/// Command-line options of the demo.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Replays a trace in Mooncake's format, or of `isotherm record`, instead of the drawn chat
    #[arg(long, value_name = "FILE", conflicts_with = "regions")]
    pub trace: Option<PathBuf>,
    /// Requests in each run: the first lines of the trace (default 1000), or so many turns of chat
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with = "regions")]
    pub requests: Option<u32>,
    /// Factor by which everything runs faster than real time [default: 10]
    #[arg(long, value_name = "X", value_parser = speedup)]
    pub speedup: Option<f64>,
    /// Seed of the chat
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Policies to compare (repeatable, or with commas) [default: isotherm,round_robin,consistent_hash; with --regions the one of all runs: prefix_tree]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub policy: Vec<PolicyName>,
    /// Replicas
    #[command(flatten)]
    pub replicas: ReplicaOptions,
}

/// Command-line options of `up`.
#[derive(Args, Clone, Debug)]
pub struct UpOptions {
    /// Routing policy
    #[arg(long, value_name = "NAME", default_value_t = PolicyName::Isotherm)]
    pub policy: PolicyName,
    /// Replicas
    #[command(flatten)]
    pub replicas: ReplicaOptions,
    /// Factor by which the engines run faster than real time
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speedup)]
    pub speedup: f64,
}

/// Replicas and push mode.
#[derive(Args, Clone, Debug)]
pub struct ReplicaOptions {
    /// The mode of pushing [default: blind for policies that classic balancers have, else pending]
    #[arg(long, value_enum)]
    pub push: Option<Push>,
    /// Simulated engines; with --regions, of each region
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
}

/// When a replica may get one more request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Push {
    /// When its last probe shows nothing waiting there.
    Pending,
    /// Below a fixed number of outstanding requests.
    Outstanding,
    /// Always.
    Blind,
}

impl Push {
    /// Name in the service's configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Outstanding => "outstanding",
            Self::Blind => "blind",
        }
    }
}

/// A policy with a mode of pushing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Where a request goes.
    pub policy: PolicyName,
    /// When it goes.
    pub push: Push,
}

impl Scheme {
    /// Name in tables and charts.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} / {}", self.policy, self.push.name())
    }
}

/// The input of all runs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Workload.
    pub workload: Workload,
    /// The replicas that are asked; policy and mode come with each run.
    pub pool: Pool,
    /// Factor by which the engines run faster than real time.
    pub speed: f64,
    /// For the report.
    pub summary: ScenarioSummary,
}

impl ReplicaOptions {
    /// A policy with the mode of pushing that was asked for, or its usual one.
    fn scheme(&self, policy: PolicyName) -> Scheme {
        Scheme {
            policy,
            push: self.push.unwrap_or(default_push(policy)),
        }
    }
}

impl UpOptions {
    /// How requests are routed.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.replicas.scheme(self.policy)
    }
}

impl DemoOptions {
    /// The schemes to compare, in the order of the report.
    #[must_use]
    pub fn schemes(&self) -> Vec<Scheme> {
        let default = [
            PolicyName::Isotherm,
            PolicyName::RoundRobin,
            PolicyName::ConsistentHash,
        ];
        let policies = match &self.policy[..] {
            [] => &default[..],
            some => some,
        };
        let scheme = |policy: &PolicyName| self.replicas.scheme(*policy);
        policies.iter().map(scheme).collect()
    }

    /// The one scheme of every arrangement of regions.
    ///
    /// # Errors
    /// When several were asked for.
    pub fn scheme_of_regions(&self) -> anyhow::Result<Scheme> {
        match self.policy[..] {
            [] => Ok(self.replicas.scheme(POLICY_OF_REGIONS)),
            [policy] => Ok(self.replicas.scheme(policy)),
            [..] => bail!(
                "with --regions arrangements are compared, not policies: every one runs the same policy, so name one with --policy"
            ),
        }
    }

    /// Reads or draws the workload.
    ///
    /// # Errors
    /// When the trace cannot be read or is not one.
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        let replicas = usize::from(self.replicas.replicas);
        let (workload, preset, speed, arguments) = match &self.trace {
            Some(path) => {
                let requests = self.requests.map_or(TRACE_REQUESTS, |count| count as usize);
                let trace = Trace::open(path, Some(requests))?;
                let speedup = self.speedup.unwrap_or(TRACE_SPEEDUP);
                (
                    Workload::replay(&trace, speedup),
                    "llama-3.1-8b-2xa100",
                    speedup * TRACE_ENGINES,
                    vec!["--kv-blocks".to_owned(), TRACE_KV_BLOCKS.to_string()],
                )
            }
            None => {
                let speedup = self.speedup.unwrap_or(CHAT_SPEEDUP);
                let mut shape = MultiTurn::chat(self.seed, replicas);
                shape.requests = self.requests.map_or(shape.requests, |count| count as usize);
                (
                    shape.workload(speedup),
                    "llama-3.1-8b-l4",
                    speedup,
                    Vec::new(),
                )
            }
        };
        ensure!(workload.requests() > 0, "there is nothing to ask");
        let described = ScenarioSummary {
            name: workload.name.clone(),
            description: workload.description.clone(),
            requests: workload.requests(),
            replicas,
            engine: preset.into(),
            speed,
            seed: self.seed,
        };
        let engine = EngineOptions {
            preset: preset.into(),
            speed,
            arguments,
        };
        Ok(Scenario {
            workload,
            pool: Pool::new(MODEL).replicas(replicas).engine(engine),
            speed,
            summary: described,
        })
    }
}

/// Interval of the service's probes for engines that run `speed` times faster than real time, ms.
pub(crate) fn probe_interval_ms(speed: f64) -> u64 {
    if speed > 1.0 { PROBE_INTERVAL_MS } else { 100 }
}

/// Classic balancers send at once; that is what they are compared as.
fn default_push(policy: PolicyName) -> Push {
    match policy {
        PolicyName::RoundRobin
        | PolicyName::Random
        | PolicyName::LeastOutstanding
        | PolicyName::PowerOfTwo => Push::Blind,
        PolicyName::Isotherm
        | PolicyName::PrefixTree
        | PolicyName::CacheAware
        | PolicyName::Preble
        | PolicyName::MinTtft
        | PolicyName::ConsistentHash
        | PolicyName::DualMap => Push::Pending,
    }
}

/// Reads a factor of time.
///
/// # Errors
/// What is allowed, for any other text.
pub fn speedup(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.1..=1_000.0).contains(&value) => Ok(value),
        _ => Err("a number from 0.1 to 1000".into()),
    }
}
