//! One workload on the standalone Envoy, and on gateways that real control planes configure.

mod report;

use std::time::Duration;

use anyhow::Context as _;
use isotherm_harness::mesh::check_network;
use isotherm_harness::{Mesh, MeshGateway, ServiceTraffic};
use tokio::time::timeout;

pub use report::{HIT_RATIO_MIN, MeshComparison, Traffic};

use crate::compare::{measure, set_probe_interval, start};
use crate::report::{Comparison, Run};
use crate::scenario::{Scenario, Scheme};

/// Longest time of one run, from the start of its programs to the last response.
const RUN_MAX: Duration = Duration::from_secs(1_800);
/// Name of the standalone Envoy in tables.
const STANDALONE: &str = "standalone";

/// A run, and the bytes that Envoy sent to the service during it.
#[derive(Clone, Debug)]
pub struct MeshRun {
    /// Measurements of the requests.
    pub run: Run,
    /// Bytes to the service.
    pub traffic: ServiceTraffic,
}

/// Parses the name of a gateway.
///
/// # Errors
/// When there is no gateway of this name.
pub fn gateway(name: &str) -> Result<MeshGateway, String> {
    let mut gateways = MeshGateway::ALL.into_iter();
    let found = gateways.find(|gateway| gateway.name() == name);
    found.ok_or_else(|| {
        let names = MeshGateway::ALL.map(MeshGateway::name);
        format!("the gateways are {}", names.join(", "))
    })
}

/// Runs every scheme on the standalone Envoy and on each gateway, each with fresh engines; prints the progress on standard
/// error.
///
/// # Errors
/// When a program is missing, or a system does not start. The report counts requests that fail.
pub async fn compare(
    scenario: &Scenario,
    schemes: &[Scheme],
    gateways: &[MeshGateway],
) -> anyhow::Result<MeshComparison> {
    check_network()?;
    for gateway in gateways {
        gateway.find_programs()?;
    }
    let mut comparison = MeshComparison {
        runs: Comparison {
            scenario: scenario.summary.clone(),
            runs: Vec::new(),
        },
        traffic: Vec::new(),
    };
    for scheme in schemes {
        let systems = gateways.iter().copied().map(Some);
        for gateway in [None].into_iter().chain(systems) {
            let name = gateway.map_or(STANDALONE, MeshGateway::name);
            eprintln!("{name}: starting {} engines", scenario.summary.replicas);
            let run = async {
                match gateway {
                    Some(gateway) => run_on_gateway(scenario, *scheme, gateway).await,
                    None => run_standalone(scenario, *scheme).await,
                }
            };
            let run = timeout(RUN_MAX, run).await;
            let run = run.with_context(|| format!("{name} takes over {RUN_MAX:?}"))?;
            let run = run.context(name)?;
            let (label, summary) = (run.run.label(), run.run.metrics.summary());
            eprintln!("{label}: {:.1} s, {summary}", run.run.duration_s);
            comparison.push(run, gateway);
        }
    }
    Ok(comparison)
}

/// Runs one scheme on the standalone Envoy.
///
/// # Errors
/// When the stack does not start.
pub async fn run_standalone(scenario: &Scenario, scheme: Scheme) -> anyhow::Result<MeshRun> {
    let stack = start(scenario, scheme).await?;
    let before = stack.service_traffic().await?;
    let (base, service) = (stack.url(""), stack.service());
    let run = measure(scenario, scheme, STANDALONE, &base, service).await?;
    Ok(MeshRun {
        run: run.on(STANDALONE),
        traffic: stack.service_traffic().await? - before,
    })
}

/// Runs one scheme on a gateway.
///
/// # Errors
/// When a program is missing or does not become ready.
pub async fn run_on_gateway(
    scenario: &Scenario,
    scheme: Scheme,
    gateway: MeshGateway,
) -> anyhow::Result<MeshRun> {
    let mesh = start_gateway(scenario, scheme, gateway).await?;
    run_on(&mesh, scenario, scheme, gateway).await
}

/// Starts a gateway with the scenario's engines, and a service with one scheme.
///
/// # Errors
/// When a program is missing or does not become ready.
pub async fn start_gateway(
    scenario: &Scenario,
    scheme: Scheme,
    gateway: MeshGateway,
) -> anyhow::Result<Mesh> {
    let speed = scenario.summary.engine_speed();
    let pool = scenario.pool.clone().policy(scheme.policy.as_ref());
    let pool = pool.push(scheme.push.name());
    Mesh::builder("mesh", gateway, pool)
        .service(move |config| set_probe_interval(config, speed))
        .start()
        .await
}

/// Plays the scenario's workload on a gateway that runs.
///
/// # Errors
/// When the statistics cannot be read.
pub async fn run_on(
    mesh: &Mesh,
    scenario: &Scenario,
    scheme: Scheme,
    gateway: MeshGateway,
) -> anyhow::Result<MeshRun> {
    let before = mesh.service_traffic().await?;
    let (base, name) = (mesh.url(""), gateway.name());
    let run = measure(scenario, scheme, name, &base, mesh.service()).await?;
    Ok(MeshRun {
        run: run.on(name),
        traffic: mesh.service_traffic().await? - before,
    })
}
