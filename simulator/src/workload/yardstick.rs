//! Workloads and fleets of 2026 by which the policy is judged beside the standard and the adverse ones.
//!
//! Long shared prefixes, agents, a load that changes, engines of two types, and a fleet that is nearly idle; engines that run few requests
//! at once, slow probes, two services over one pool, and engines that serve another router, too. Each has its fleet.

use core::time::Duration;

use isotherm_engine::model::{Config, Preset};

use super::OpenLoop;
use super::agents::Agents;
use super::chat::Chat;
use super::drift::Drift;
use super::generator::{Generator, OpenKind, conversation, open, tools_at};
use super::standard::Standard;
use crate::setup::RegionSetup;

/// Replicas of a fleet that is nearly idle, and its requests a second: a quarter of what `tools-past` has for each replica.
const LIGHT_REPLICAS: usize = 40;
const LIGHT_PER_S: f64 = 20.0;
/// Share of the sessions that another router serves.
const BYPASS_SHARE: f64 = 0.33;

/// The workloads, in the order of reports.
pub fn yardstick() -> Vec<Standard> {
    let shared_prefix = OpenLoop {
        requests: 2_250,
        requests_per_s: 11.0,
        warmup_requests: 300,
    };
    let shared_prefix = Generator::Open(OpenKind::SharedPrefix, shared_prefix);
    let agents = Generator::Agents(Agents {
        programs: 60,
        arrival: Duration::from_secs(90),
        warmup_requests: 250,
        duration: Duration::from_secs(600),
    });
    let drift = Generator::Drift(Drift {
        phase: Duration::from_secs(100),
        warmup_requests: 200,
    });
    vec![
        Standard::new("shared-prefix", shared_prefix, a100s(8)),
        Standard::new("agents", agents, small_caches()),
        Standard::new("drift", drift, a100s(6)),
        Standard::new("mixed-hardware", tools_at(5.0), two_types()),
        Standard::new("light", tools_at(LIGHT_PER_S), a100s(LIGHT_REPLICAS)),
        Standard::new("small-batch-16", long_answers(12.0), small_batches(16)),
        Standard::new("small-batch-32", long_answers(23.0), small_batches(32)),
        Standard {
            probe_interval: Duration::from_secs(1),
            ..Standard::new(
                "slow-probes",
                Generator::Bursty(1.0),
                of(Preset::Llama31_8bL4, 8),
            )
        },
        Standard {
            services: 2,
            ..Standard::new("siblings", conversation(8.0), a100s(8))
        },
        Standard {
            bypass_share: BYPASS_SHARE,
            ..Standard::new("shared-engines", chats(), of(Preset::Llama31_8bL4, 8))
        },
    ]
}

/// People who chat, as many for a replica as in the three-region workload.
fn chats() -> Generator {
    Generator::Chat(Chat {
        name: "shared-engines",
        clients: vec![66],
        duration: Duration::from_secs(1_200),
        ..Chat::wildchat()
    })
}

/// Labels of a few tokens beside answers of thousands.
fn long_answers(requests_per_s: f64) -> Generator {
    open(OpenKind::Bimodal, 4_000, requests_per_s)
}

fn of(preset: Preset, replicas: usize) -> Vec<RegionSetup> {
    vec![RegionSetup::new("one", preset.config(), replicas)]
}

fn a100s(replicas: usize) -> Vec<RegionSetup> {
    of(Preset::Llama31_8b2xA100, replicas)
}

/// Four replicas whose caches hold two thirds of what the preset's do, as with larger weights.
fn small_caches() -> Vec<RegionSetup> {
    let config = Config {
        blocks: 40_000,
        ..Preset::Llama31_8b2xA100.config()
    };
    vec![RegionSetup::new("one", config, 4)]
}

/// Four replicas of each of two machines for one model.
fn two_types() -> Vec<RegionSetup> {
    let mut regions = of(Preset::Llama2_70bH100, 4);
    let slower = of(Preset::Llama2_70bA100, 4).into_iter();
    let slower = slower.flat_map(|region| region.replicas);
    if let Some(region) = regions.first_mut() {
        region.replicas.extend(slower);
    }
    regions
}

/// Eight replicas that run few requests at once.
fn small_batches(sequences_max: u32) -> Vec<RegionSetup> {
    let config = Config {
        sequences_max,
        ..Preset::Llama31_8b2xA100.config()
    };
    vec![RegionSetup::new("one", config, 8)]
}
