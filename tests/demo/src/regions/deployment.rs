//! Three ways to serve clients of several regions with the same replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use isotherm_harness::envoy::show_decisions;
use isotherm_harness::{Document, EngineOptions, MODEL, Pool, Regions, Stack, Tools, wait_for};
use isotherm_harness::{FaultyLink, NetworkConditions};
use serde::Serialize;
use serde_json::{Value, json};

use super::engines::Engines;
use crate::client::{Client, decision_field};
use crate::scenario::{Scheme, probe_interval_ms};

/// Names of the regions; the first has the central balancer.
pub const REGIONS: [&str; 3] = ["us", "eu", "asia"];
/// Not this machine's two cores, but the replicas, are to be the bottleneck: one thread of Envoy for a region.
const ENVOY_WORKERS: u16 = 1;
/// At ten times the speed of life that is half a second of life; the probes of replicas are twice as frequent.
const HEARTBEAT_MS: u64 = 50;
/// Ten seconds at ten times the speed of life.
const GIVE_BACK_AFTER_MS: u64 = 1_000;
/// Time for regions to find each other.
const HEARD_MAX: Duration = Duration::from_secs(20);

/// ClientId decides where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Arrangement {
    /// Each region for itself: Envoy, the service and replicas.
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
    /// ClientId decides.
    pub arrangement: Arrangement,
    /// Replicas of each region.
    pub replicas: usize,
    /// Options of each replica.
    pub engine: EngineOptions,
    /// How each service chooses among them.
    pub scheme: Scheme,
    /// From one region to another and back, measured time.
    pub round_trip: Duration,
}

/// Where the clients of a region ask.
#[derive(Clone, Debug)]
pub struct RegionEndpoint {
    /// The region's name.
    pub region: String,
    /// Asks there.
    pub client: Client,
    replicas: Arc<Vec<(String, usize)>>,
}

impl RegionEndpoint {
    /// The number of the region whose replica answered, from what `x-isotherm-decision` says: each service that
    /// decided, with `, ` between them. The last one knows the replica; a request that came region again was decided
    /// there last.
    #[must_use]
    pub fn serving_region(&self, decision: &str) -> Option<usize> {
        let last = decision.rsplit(", ").next()?;
        if let Some(replica) = decision_field(last, "replica") {
            let found = self.replicas.iter().find(|(address, _)| address == replica);
            return found.map(|(_, region)| *region);
        }
        let name = decision_field(last, "region")?;
        REGIONS.iter().position(|region| *region == name)
    }
}

/// Regions, running. They end when this is dropped.
pub struct Deployment {
    /// Endpoint of each region.
    pub endpoints: Vec<RegionEndpoint>,
    parts: Parts,
    _engines: Vec<Engines>,
}

/// The running parts of an arrangement.
enum Parts {
    /// Each region alone.
    Alone { _stacks: Vec<Stack> },
    /// Regions that know each other.
    Together(Box<Regions>),
    /// A central region, and the links to it.
    Far {
        _stack: Box<Stack>,
        _wires: Vec<FaultyLink>,
    },
}

impl Deployment {
    /// Starts all of it with empty caches, and waits until requests can go all the way.
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

    /// The regions, where they know each other.
    #[must_use]
    pub fn regions(&self) -> Option<&Regions> {
        match &self.parts {
            Parts::Together(regions) => Some(regions),
            Parts::Alone { .. } | Parts::Far { .. } => None,
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
        endpoints: endpoints(&addresses, &places(&engines))?,
        parts: Parts::Alone { _stacks: stacks },
        _engines: engines,
    })
}

async fn forwarding(plan: &DeploymentPlan, engines: Vec<Engines>) -> anyhow::Result<Deployment> {
    let (probe_ms, heartbeat_ms) = (probe_interval_ms(plan.engine.speed), heartbeat_ms(plan));
    let mut builder = Regions::builder("regions-forwarding")
        .round_trip(plan.round_trip)
        .service(move |_, config| {
            set_probe(config, probe_ms)?;
            config.set("region/give_back_after_ms", GIVE_BACK_AFTER_MS)?;
            config.set("region/heartbeat_ms", heartbeat_ms)
        })
        .envoy(|_, config| show_decisions(config));
    for (region, own) in REGIONS.iter().zip(&engines) {
        builder = builder.region(region, pool(plan, own.addresses().to_vec()));
    }
    let regions = builder.start().await?;
    let mut addresses = Vec::new();
    for region in REGIONS {
        hears_all(&regions, region).await?;
        addresses.push(regions.region(region)?.envoy().address());
    }
    Ok(Deployment {
        endpoints: endpoints(&addresses, &places(&engines))?,
        parts: Parts::Together(Box::new(regions)),
        _engines: engines,
    })
}

/// Waits until a region hears all others. The first to be up takes the others' replicas for those of dead regions;
/// it must have given them back as well.
async fn hears_all(regions: &Regions, region: &str) -> anyhow::Result<()> {
    wait_for(
        HEARD_MAX,
        &format!("{region} to hear the others"),
        || async {
            let seen = regions.status(region).await?;
            let peers = seen.get("peers").and_then(Value::as_array);
            let heard = peers.into_iter().flatten().filter(|peer| {
                let state = peer.get("state").and_then(Value::as_str);
                let adopted = peer.get("adopted").and_then(Value::as_u64);
                state == Some("up") && adopted == Some(0)
            });
            Ok((heard.count() == REGIONS.len() - 1).then_some(()))
        },
    )
    .await
}

fn places(engines: &[Engines]) -> Vec<(SocketAddr, usize)> {
    let of_region = |(region, own): (usize, &'_ Engines)| {
        let own = own.addresses().to_vec();
        own.into_iter().map(move |address| (address, region))
    };
    engines.iter().enumerate().flat_map(of_region).collect()
}

/// Replicas and clients of other regions than the first are a long wire away from the balancer.
async fn central(plan: &DeploymentPlan, engines: Vec<Engines>) -> anyhow::Result<Deployment> {
    let weather = NetworkConditions::with_round_trip(plan.round_trip);
    let (mut wires, mut places) = (Vec::new(), Vec::new());
    for (region, own) in engines.iter().enumerate() {
        for address in own.addresses() {
            if region == 0 {
                places.push((*address, region));
            } else {
                let wire = FaultyLink::start(&weather, vec![*address]).await?;
                places.push((wire.address(), region));
                wires.push(wire);
            }
        }
    }
    let replicas = places.iter().map(|(address, _)| *address).collect();
    let stack = stack(plan, "central", replicas).await?;
    let envoy = stack.envoy().address();
    let mut addresses = vec![envoy];
    for _ in 1..engines.len() {
        let wire = FaultyLink::start(&weather, vec![envoy]).await?;
        addresses.push(wire.address());
        wires.push(wire);
    }
    Ok(Deployment {
        endpoints: endpoints(&addresses, &places)?,
        parts: Parts::Far {
            _stack: Box::new(stack),
            _wires: wires,
        },
        _engines: engines,
    })
}

async fn stack(
    plan: &DeploymentPlan,
    name: &str,
    replicas: Vec<SocketAddr>,
) -> anyhow::Result<Stack> {
    let interval_ms = probe_interval_ms(plan.engine.speed);
    Stack::builder(&format!("regions-{name}"))
        .pool(pool(plan, replicas))
        .workers(ENVOY_WORKERS)
        .service(move |config| set_probe(config, interval_ms))
        .envoy(show_decisions)
        .start()
        .await
        .with_context(|| format!("the Envoy or service `{name}`"))
}

fn pool(plan: &DeploymentPlan, replicas: Vec<SocketAddr>) -> Pool {
    let Scheme { policy, push } = plan.scheme;
    let pool = Pool::new(MODEL).with_addresses(replicas);
    pool.policy(policy.as_str()).push(push.name())
}

fn set_probe(config: &mut Document, interval_ms: u64) -> anyhow::Result<()> {
    config.set("pools/0/probe", json!({ "interval_ms": interval_ms }))
}

/// A heartbeat every 200 ms is the service's default; faster engines need it sooner, within reason.
fn heartbeat_ms(plan: &DeploymentPlan) -> u64 {
    if plan.engine.speed > 1.0 {
        HEARTBEAT_MS
    } else {
        200
    }
}

fn endpoints(
    addresses: &[SocketAddr],
    places: &[(SocketAddr, usize)],
) -> anyhow::Result<Vec<RegionEndpoint>> {
    let replicas: Vec<(String, usize)> = places
        .iter()
        .map(|(address, region)| (address.to_string(), *region))
        .collect();
    let replicas = Arc::new(replicas);
    let endpoint = |(region, address): (usize, &SocketAddr)| {
        Ok(RegionEndpoint {
            region: REGIONS.get(region).copied().unwrap_or_default().to_owned(),
            client: Client::new(&format!("http://{address}"), MODEL)?,
            replicas: Arc::clone(&replicas),
        })
    };
    addresses.iter().enumerate().map(endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_decide_knows_where_a_request_went() {
        let addresses: Vec<SocketAddr> = ["127.0.0.1:1", "127.0.0.1:2"]
            .map(|address| address.parse().unwrap())
            .into();
        let endpoints = endpoints(&addresses, &[(addresses[0], 0), (addresses[1], 1)]).unwrap();
        let serving_region = |decision| endpoints[0].serving_region(decision);
        assert_eq!(serving_region("replica=127.0.0.1:1;queued_ms=0"), Some(0));
        assert_eq!(
            serving_region("region=eu;policy=a, replica=127.0.0.1:2;policy=a"),
            Some(1)
        );
        assert_eq!(
            serving_region("region=eu;policy=a, replica=127.0.0.1:1;policy=a"),
            Some(0)
        );
        assert_eq!(serving_region("region=asia;policy=a"), Some(2));
        assert_eq!(serving_region("replica=127.0.0.1:9"), None);
    }
}
