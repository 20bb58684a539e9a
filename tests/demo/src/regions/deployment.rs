//! Three arrangements that serve clients of several regions with the same replicas.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use isotherm_harness::envoy::show_decisions;
use isotherm_harness::{
    EngineOptions, FaultyLink, MODEL, NetworkConditions, Pool, Regions, Stack, Tools, wait_for,
};
use serde::Serialize;
use serde_json::Value;

use super::engines::Engines;
use crate::client::Client;
use crate::compare::{set_probe_interval, stack_builder};
use crate::scenario::Scheme;

/// Names of the regions; the first has the central balancer.
pub const REGIONS: [&str; 3] = ["us", "eu", "asia"];
/// One thread of Envoy for a region, so that the replicas and not this machine's cores are the bottleneck.
const ENVOY_WORKERS: u16 = 1;
/// Heartbeat interval of fast engines; the service's default is 200 ms.
const HEARTBEAT_MS: u64 = 50;
/// Time for regions to find each other.
const HEARD_MAX: Duration = Duration::from_secs(20);

/// Placement of the services that select the replica of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Arrangement {
    /// Each region has an Envoy, a service and replicas of its own.
    Local,
    /// Each region has an Envoy, a service and replicas, and forwards to others when it is full.
    Forwarding,
    /// The first region has one Envoy and one service for all clients and all replicas.
    Central,
}

impl Arrangement {
    /// Name in tables and charts.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Local => "region-local",
            Self::Forwarding => "forwarding",
            Self::Central => "central in us",
        }
    }
}

/// Description of a deployment.
#[derive(Clone, Debug)]
pub struct DeploymentPlan {
    /// Arrangement.
    pub arrangement: Arrangement,
    /// Replicas of each region.
    pub replicas: usize,
    /// Options of each replica.
    pub engine: EngineOptions,
    /// Policy and push mode of each service.
    pub scheme: Scheme,
    /// Round-trip time between two regions, on this machine's clock.
    pub round_trip: Duration,
}

/// Running regions. They end when the deployment is dropped.
pub struct Deployment {
    /// Client of each region.
    pub clients: Vec<Client>,
    /// The regions, when they know each other.
    pub regions: Option<Regions>,
    _stacks: Vec<Stack>,
    _links: Vec<FaultyLink>,
    _engines: Vec<Engines>,
}

impl Deployment {
    /// The clients of engines. `addresses` has the Envoy of each region, and `places` the region of each replica.
    fn new(
        addresses: &[SocketAddr],
        places: &[(SocketAddr, usize)],
        engines: Vec<Engines>,
    ) -> anyhow::Result<Self> {
        let places = places.iter();
        let replicas = places.map(|(address, region)| (address.to_string(), *region));
        let names = REGIONS.map(str::to_owned).into_iter().zip(0..);
        let regions: Arc<HashMap<String, usize>> = Arc::new(names.chain(replicas).collect());
        let client = |(region, address): (usize, &SocketAddr)| {
            Client::of_region(&format!("http://{address}"), region, Arc::clone(&regions))
        };
        let clients = addresses.iter().enumerate().map(client);
        Ok(Self {
            clients: clients.collect::<anyhow::Result<_>>()?,
            regions: None,
            _stacks: Vec::new(),
            _links: Vec::new(),
            _engines: engines,
        })
    }

    /// Starts everything with empty caches, and waits until requests can reach a replica.
    ///
    /// # Errors
    /// When something does not become ready.
    pub async fn start(plan: &DeploymentPlan) -> anyhow::Result<Self> {
        let tools = Tools::find()?;
        let mut engines = Vec::new();
        for region in REGIONS {
            engines.push(Engines::start(&tools, region, plan.replicas, MODEL, &plan.engine).await?);
        }
        match plan.arrangement {
            Arrangement::Local => local(plan, engines).await,
            Arrangement::Central => central(plan, engines).await,
            Arrangement::Forwarding => forwarding(plan, engines).await,
        }
    }
}

async fn local(plan: &DeploymentPlan, engines: Vec<Engines>) -> anyhow::Result<Deployment> {
    let mut stacks = Vec::new();
    for (region, own) in REGIONS.iter().zip(&engines) {
        stacks.push(stack(plan, region, own.addresses().to_vec()).await?);
    }
    let addresses: Vec<SocketAddr> = stacks.iter().map(|stack| stack.envoy().address()).collect();
    Ok(Deployment {
        _stacks: stacks,
        ..Deployment::new(&addresses, &places(&engines), engines)?
    })
}

async fn forwarding(plan: &DeploymentPlan, engines: Vec<Engines>) -> anyhow::Result<Deployment> {
    let speed = plan.engine.speed;
    let heartbeat_ms = if speed > 1.0 { HEARTBEAT_MS } else { 200 };
    let mut builder = Regions::builder("regions-forwarding")
        .round_trip(plan.round_trip)
        .service(move |_, config| {
            set_probe_interval(config, speed)?;
            config.set("region/heartbeat_ms", heartbeat_ms)
        })
        .envoy(|_, config| show_decisions(config));
    for (region, own) in REGIONS.iter().zip(&engines) {
        let pool = Pool::new(MODEL).with_addresses(own.addresses().to_vec());
        let Scheme { policy, push } = plan.scheme;
        builder = builder.region(region, pool.policy(policy.as_ref()).push(push.name()));
    }
    let regions = builder.start().await?;
    let mut addresses = Vec::new();
    for region in REGIONS {
        hears_all(&regions, region).await?;
        addresses.push(regions.region(region)?.envoy().address());
    }
    Ok(Deployment {
        regions: Some(regions),
        ..Deployment::new(&addresses, &places(&engines), engines)?
    })
}

/// Waits until a region hears all others, and has none of their replicas.
pub(super) async fn hears_all(regions: &Regions, region: &str) -> anyhow::Result<()> {
    let condition = format!("{region} to hear the others");
    wait_for(HEARD_MAX, &condition, || async {
        let status = regions.status(region).await?;
        let peers = status.get("peers").and_then(Value::as_array);
        let is_up = |peer: &&Value| peer["state"] == "up" && peer["leased"] == 0;
        let up = peers.into_iter().flatten().filter(is_up).count();
        Ok((up == REGIONS.len() - 1).then_some(()))
    })
    .await
}

/// The region of each replica.
fn places(engines: &[Engines]) -> Vec<(SocketAddr, usize)> {
    let of_region = |(region, own): (usize, &'_ Engines)| {
        let own = own.addresses().to_vec();
        own.into_iter().map(move |address| (address, region))
    };
    engines.iter().enumerate().flat_map(of_region).collect()
}

/// Links with the round-trip time of the plan lead from the balancer to the replicas and clients of all regions but the first.
async fn central(plan: &DeploymentPlan, engines: Vec<Engines>) -> anyhow::Result<Deployment> {
    let conditions = NetworkConditions::with_round_trip(plan.round_trip);
    let (mut links, mut places) = (Vec::new(), Vec::new());
    for (region, own) in engines.iter().enumerate() {
        for address in own.addresses() {
            if region == 0 {
                places.push((*address, region));
            } else {
                let link = FaultyLink::start(&conditions, vec![*address]).await?;
                places.push((link.address(), region));
                links.push(link);
            }
        }
    }
    let replicas = places.iter().map(|(address, _)| *address).collect();
    let stack = stack(plan, "central", replicas).await?;
    let envoy = stack.envoy().address();
    let mut addresses = vec![envoy];
    for _ in 1..engines.len() {
        let link = FaultyLink::start(&conditions, vec![envoy]).await?;
        addresses.push(link.address());
        links.push(link);
    }
    Ok(Deployment {
        _stacks: vec![stack],
        _links: links,
        ..Deployment::new(&addresses, &places, engines)?
    })
}

async fn stack(
    plan: &DeploymentPlan,
    name: &str,
    replicas: Vec<SocketAddr>,
) -> anyhow::Result<Stack> {
    let (speed, scheme) = (plan.engine.speed, plan.scheme);
    let pool = Pool::new(MODEL).with_addresses(replicas);
    stack_builder(&format!("regions-{name}"), pool, speed, scheme)
        .workers(ENVOY_WORKERS)
        .start()
        .await
        .with_context(|| format!("the Envoy or service `{name}`"))
}
