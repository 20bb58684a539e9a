//! Command-line options of the demo with several regions.

use std::time::Duration;

use clap::{Args, ValueEnum};
use isotherm_harness::EngineOptions;
use serde::Serialize;

use super::client_counts::ClientCounts;
use super::deployment::{Arrangement, DeploymentPlan, REGIONS};
use super::population::ClientPopulation;
use crate::metrics::round;
use crate::scenario::{Scheme, number_in};
use crate::workload::Chat;

/// The replica of SkyLB's paper.
const PRESET: &str = "llama-3.1-8b-l4";
/// Bound on running requests (vLLM: `max_num_seqs`), within the 20 to 50 that SkyLB saw on this replica. More requests would
/// evict each other's prefixes from the cache.
const SEQUENCES_MAX: &str = "20";
/// Fraction of the replicas when regions share them, for the clients `day`.
const SHARED: (usize, usize) = (3, 4);
/// Length of a run and of its warm-up, in seconds.
const SKEWED_S: (u32, u32) = (32, 7);
const DAY_S: (u32, u32) = (54, 4);

/// The circumstances of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Policy and push mode of every service.
    pub scheme: String,
    /// Preset of hardware and model that each replica simulates.
    pub engine: String,
    /// Factor by which everything runs faster than real time.
    pub speed: f64,
    /// Round-trip time between two regions by the engines' clock.
    pub round_trip_ms: f64,
    /// Delay that the network injects for it.
    pub round_trip_measured_ms: f64,
    /// Seed of the clients.
    pub seed: u64,
}

/// Number and distance of regions.
#[derive(Args, Clone, Debug)]
pub struct Topology {
    /// Simulates this many regions (us, eu, asia), with a delay between them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=3))]
    pub regions: Option<u8>,
    /// Round-trip time between two regions on the engines' clock: with engines ten times faster than real time, a tenth of it passes here
    #[arg(long, value_name = "MS", default_value_t = 150.0, value_parser = round_trip, requires = "regions")]
    pub round_trip_ms: f64,
}

impl Topology {
    /// Regions that forward to each other, with `replicas` each.
    #[must_use]
    pub fn forwarding(&self, replicas: usize, speed: f64, scheme: Scheme) -> DeploymentPlan {
        DeploymentPlan {
            arrangement: Arrangement::Forwarding,
            replicas,
            scheme,
            engine: EngineOptions {
                preset: PRESET.into(),
                speed,
                arguments: vec!["--sequences-max".into(), SEQUENCES_MAX.into()],
            },
            round_trip: Duration::from_secs_f64(self.round_trip_ms / 1_000.0 / speed),
        }
    }
}

/// Command-line options of the comparison of arrangements.
#[derive(Args, Clone, Debug)]
pub struct RegionOptions {
    /// Number and distance of the regions.
    #[command(flatten)]
    pub topology: Topology,
    /// Clients of the regions (repeatable, or with commas) [default: skewed,day]
    #[arg(long, value_enum, value_delimiter = ',', requires = "regions")]
    pub clients: Vec<Clients>,
    /// Arrangements to compare (repeatable, or with commas) [default: local,forwarding,central]
    #[arg(long, value_enum, value_delimiter = ',', requires = "regions")]
    pub arrangement: Vec<Arrangement>,
    /// Seconds of each run, instead of 32 (skewed) and 54 (day)
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(5..=3_600), requires = "regions")]
    pub seconds: Option<u32>,
}

/// Number of clients over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Clients {
    /// 120 in us, 40 in eu and asia, all the time.
    Skewed,
    /// A day in which each region peaks in turn.
    Day,
}

impl Clients {
    /// Name in tables.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Skewed => "120/40/40",
            Self::Day => "turning peaks",
        }
    }

    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Skewed => {
                "120 clients in us, 40 in eu and 40 in asia; each sends its next request when it has read the response"
            }
            Self::Day => {
                "A day squeezed into minutes: each region has 6 clients at night and 96 at its peak, and they peak in turn"
            }
        }
    }
}

/// A set of clients, and the deployments that serve them.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Number of clients over time.
    pub clients: Clients,
    /// Clients of every run.
    pub population: ClientPopulation,
    /// Deployments, one for each run.
    pub plans: Vec<DeploymentPlan>,
}

impl RegionOptions {
    /// The trials: `plan` in every arrangement, with fewer replicas where regions share them.
    #[must_use]
    pub fn trials(&self, plan: &DeploymentPlan, seed: u64) -> Vec<Trial> {
        let clients = match &self.clients[..] {
            [] => Clients::value_variants(),
            some => some,
        };
        let arrangements = match &self.arrangement[..] {
            [] => Arrangement::value_variants(),
            some => some,
        };
        let arranged = |clients, arrangement| DeploymentPlan {
            arrangement,
            replicas: match (clients, arrangement) {
                (Clients::Day, Arrangement::Forwarding | Arrangement::Central) => {
                    (plan.replicas * SHARED.0 / SHARED.1).max(1)
                }
                _ => plan.replicas,
            },
            ..plan.clone()
        };
        let trial = |clients: Clients| {
            let plans = arrangements.iter();
            Trial {
                clients,
                population: self.population(clients, plan.engine.speed, seed),
                plans: plans
                    .map(|arrangement| arranged(clients, *arrangement))
                    .collect(),
            }
        };
        clients.iter().copied().map(trial).collect()
    }

    /// Whether a region dies in a run of its own: in a demo of everything.
    #[must_use]
    pub fn has_outage(&self) -> bool {
        let forwards =
            self.arrangement.is_empty() || self.arrangement.contains(&Arrangement::Forwarding);
        forwards && self.clients.is_empty()
    }

    /// The circumstances for the report.
    #[must_use]
    pub fn setup(&self, plan: &DeploymentPlan, seed: u64) -> Setup {
        let speed = plan.engine.speed;
        Setup {
            scheme: plan.scheme.label(),
            engine: format!("{PRESET}, at most {SEQUENCES_MAX} requests at once"),
            speed,
            round_trip_ms: self.topology.round_trip_ms,
            round_trip_measured_ms: round(plan.round_trip.as_secs_f64() * 1_000.0),
            seed,
        }
    }

    fn population(&self, clients: Clients, speed: f64, seed: u64) -> ClientPopulation {
        let (counts, (seconds, warm_up)) = match clients {
            Clients::Skewed => (ClientCounts::skewed(REGIONS.len()), SKEWED_S),
            Clients::Day => (ClientCounts::day(REGIONS.len()), DAY_S),
        };
        let length = Duration::from_secs(self.seconds.unwrap_or(seconds).into());
        ClientPopulation {
            counts,
            chat: Chat::about_documents(seed),
            speed,
            length,
            warm_up: length.mul_f64(f64::from(warm_up) / f64::from(seconds)),
        }
    }
}

fn round_trip(text: &str) -> Result<f64, String> {
    number_in(text, 0.0..=10_000.0)
}
