//! The scenario of a demo: a workload, its engines, and the schemes to compare.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use isotherm_harness::{EngineOptions, MODEL, Pool};
use isotherm_policies::PolicyName;
use isotherm_simulator::workload::trace::Trace;

use crate::report::ScenarioSummary;
use crate::workload::{Chat, Workload};

/// Default speed: two cores keep up, and three runs take two minutes.
pub const SPEEDUP: f64 = 10.0;
/// Recorded traces come from clusters larger than a demo, so each replica stands for three engines: three times the speed and
/// three times the KV blocks. Its clock is that of the trace.
const TRACE_ENGINES: u32 = 3;
const TRACE_KV_BLOCKS: u32 = TRACE_ENGINES * 59_000;
const TRACE_REQUESTS: u32 = 1_000;
/// Interval of the probes of fast engines; the service's default is 100 ms.
const PROBE_INTERVAL_MS: u64 = 25;
/// Policies that a demo compares by default.
const POLICIES: [PolicyName; 3] = [
    PolicyName::Isotherm,
    PolicyName::RoundRobin,
    PolicyName::ConsistentHash,
];
/// Command-line options of the demo.
#[derive(Args, Clone, Debug)]
pub struct DemoOptions {
    /// Replays a trace in Mooncake's format, or of `isotherm record`, instead of the drawn chat
    #[arg(long, value_name = "FILE", conflicts_with = "regions")]
    pub trace: Option<PathBuf>,
    /// Requests in each run: the first lines of the trace (default 1000), or so many turns of chat
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), conflicts_with = "regions")]
    pub requests: Option<u32>,
    /// Factor by which everything runs faster than real time
    #[arg(long, value_name = "X", default_value_t = SPEEDUP, value_parser = speedup)]
    pub speedup: f64,
    /// Seed of the chat
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Policies to compare (repeatable, or with commas) [default: isotherm,round_robin,consistent_hash; with --regions and --mesh isotherm]
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
    /// Push mode [default: blind for policies that classic balancers have, else pending]
    #[arg(long, value_enum)]
    pub push: Option<Push>,
    /// Simulated engines; with --regions, of each region
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
}

/// Condition for another request to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Push {
    /// The replica's last probe shows no waiting request.
    Pending,
    /// The replica has fewer outstanding requests than a bound.
    Outstanding,
    /// None.
    Blind,
}

impl Push {
    /// Name in the service's configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Outstanding => "outstanding:32",
            Self::Blind => "blind",
        }
    }
}

/// A policy with a push mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheme {
    /// Routing policy.
    pub policy: PolicyName,
    /// Push mode.
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
    /// Replicas; policy and push mode differ by run.
    pub pool: Pool,
    /// Summary for the report.
    pub summary: ScenarioSummary,
}

impl ReplicaOptions {
    /// A policy with the requested push mode, or else with the policy's usual one.
    #[must_use]
    pub fn scheme(&self, policy: PolicyName) -> Scheme {
        // Classic balancers send every request at once.
        let usual = match policy {
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
        };
        Scheme {
            policy,
            push: self.push.unwrap_or(usual),
        }
    }
}

impl UpOptions {
    /// Policy and push mode.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.replicas.scheme(self.policy)
    }
}

impl DemoOptions {
    /// The schemes to compare, in the order of the report.
    #[must_use]
    pub fn schemes(&self) -> Vec<Scheme> {
        let policies = match &self.policy[..] {
            [] => &POLICIES,
            policies => policies,
        };
        let policies = policies.iter().copied();
        policies
            .map(|policy| self.replicas.scheme(policy))
            .collect()
    }

    /// The schemes to run on every gateway of a mesh; without `--policy` the default policy alone.
    #[must_use]
    pub fn schemes_of_meshes(&self) -> Vec<Scheme> {
        match &self.policy[..] {
            [] => vec![self.replicas.scheme(PolicyName::Isotherm)],
            _ => self.schemes(),
        }
    }

    /// The scheme of every arrangement of regions.
    ///
    /// # Errors
    /// When the options name several policies.
    pub fn scheme_of_regions(&self) -> anyhow::Result<Scheme> {
        ensure!(
            self.policy.len() <= 1,
            "with --regions arrangements are compared, not policies: every one runs the same policy, so name one with --policy"
        );
        let policy = self.policy.first().copied();
        Ok(self.replicas.scheme(policy.unwrap_or(PolicyName::Isotherm)))
    }

    /// Reads or draws the workload.
    ///
    /// # Errors
    /// When the trace cannot be read or is not a trace.
    pub fn scenario(&self) -> anyhow::Result<Scenario> {
        let replicas = usize::from(self.replicas.replicas);
        let (workload, engine, engines_per_replica) = match &self.trace {
            Some(path) => {
                let requests = self.requests.unwrap_or(TRACE_REQUESTS) as usize;
                let trace = Trace::open(path, Some(requests))?;
                let engine = EngineOptions {
                    preset: "llama-3.1-8b-2xa100".into(),
                    speed: self.speedup * f64::from(TRACE_ENGINES),
                    arguments: vec!["--kv-blocks".into(), TRACE_KV_BLOCKS.to_string()],
                };
                (
                    Workload::replay(&trace, self.speedup),
                    engine,
                    TRACE_ENGINES,
                )
            }
            None => {
                let chat = Chat::multi_turn(self.seed, replicas);
                let requests = self.requests.map_or(240 * replicas, |count| count as usize);
                let engine = EngineOptions {
                    speed: self.speedup,
                    ..EngineOptions::default()
                };
                let workload = chat.workload(requests, 16 * replicas, self.speedup);
                (workload, engine, 1)
            }
        };
        ensure!(workload.requests() > 0, "the trace has no request");
        let summary = ScenarioSummary {
            name: workload.name.clone(),
            description: workload.description.clone(),
            requests: workload.requests(),
            replicas,
            engine: engine.preset.clone(),
            speed: self.speedup,
            engines_per_replica,
            seed: self.seed,
        };
        Ok(Scenario {
            workload,
            pool: Pool::new(MODEL).replicas(replicas).engine(engine),
            summary,
        })
    }
}

/// Interval of the service's probes for engines that run `speed` times faster than real time, ms.
pub(crate) fn probe_interval_ms(speed: f64) -> u64 {
    if speed > 1.0 { PROBE_INTERVAL_MS } else { 100 }
}

/// Parses a factor of time.
pub(crate) fn speedup(text: &str) -> Result<f64, String> {
    number_in(text, 0.1..=1_000.0)
}

/// Parses a number within bounds.
pub(crate) fn number_in(text: &str, bounds: RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| bounds.contains(number));
    number.ok_or_else(|| format!("a number from {} to {}", bounds.start(), bounds.end()))
}
