//! The system under fire: simulated replicas behind a network that can fail, two services, two Envoys.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use isotherm_harness::process::Process;
use isotherm_harness::{
    EngineOptions, Engines, FaultyLink, MODEL, NetworkConditions, Pool, Stack, wait_for,
};
use serde_json::{Value, json};

use super::fault_plan::{FaultKind, PlannedFault, Sizes, Target};
use super::resources::Resources;

/// Processes of the system.
pub(super) const SIZES: Sizes = Sizes {
    replicas: 4,
    services: 2,
    envoys: 2,
};
/// Factor by which engines run faster than the hardware that they simulate.
const SPEED: f64 = 10.0;
/// Factor by which a slow replica is slower.
const SLOW: f64 = 10.0;
/// Share of the requests that a failing replica fails.
const ERROR_SHARE: f64 = 0.5;
/// Round trip of a slow network.
const SLOW_ROUND_TRIP: Duration = Duration::from_millis(300);
/// Longest time of a request to an engine's own interface.
const ORDER_MAX: Duration = Duration::from_secs(10);

/// The running system. Its processes end when it is dropped.
#[derive(Debug)]
pub(super) struct System {
    // Dropped in this order: the programs that connect first.
    pub(super) stack: Stack,
    links: Vec<(FaultyLink, NetworkConditions)>,
    engines: Engines,
    http: reqwest::Client,
}

impl System {
    /// Starts everything.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let options = EngineOptions {
            speed: SPEED,
            ..EngineOptions::default()
        };
        let pool = Pool::new(MODEL).replicas(SIZES.replicas).engine(options);
        let engines = Engines::start("soak-engines", &pool).await?;
        let mut links = Vec::new();
        for address in engines.addresses() {
            let conditions = NetworkConditions::with_round_trip(Duration::ZERO);
            let link = FaultyLink::start(&conditions, vec![address]).await?;
            links.push((link, conditions));
        }
        let addresses = links.iter().map(|(link, _)| link.address());
        let pool = Pool::new(MODEL).with_addresses(addresses);
        let stack = Stack::builder("soak")
            .pool(pool.policy("isotherm"))
            .services(SIZES.services)
            .envoys(SIZES.envoys);
        Ok(Self {
            stack: stack.start().await?,
            links,
            engines,
            http: reqwest::Client::builder()
                .no_proxy()
                .pool_max_idle_per_host(0)
                .timeout(ORDER_MAX)
                .build()?,
        })
    }

    /// The addresses for clients.
    pub(super) fn envoys(&self) -> Vec<SocketAddr> {
        self.stack.envoys().map(|envoy| envoy.address()).collect()
    }

    /// Begins a fault.
    pub(super) async fn inject(&mut self, fault: &PlannedFault) -> anyhow::Result<()> {
        let length = fault.end.saturating_sub(fault.begin).as_millis();
        match fault.target {
            Target::Service(index) => {
                let service = self.stack.services_mut().nth(index);
                let service = service.with_context(|| format!("no service {index}"))?;
                match fault.kind {
                    FaultKind::ServiceKilled => service.kill(),
                    _ => service.process()?.suspend(),
                }
            }
            Target::Envoy(index) => {
                let envoy = self.stack.envoys_mut().nth(index);
                let envoy = envoy.with_context(|| format!("no Envoy {index}"))?;
                match fault.kind {
                    FaultKind::EnvoyKilled => envoy.kill(),
                    _ => envoy.process().suspend(),
                }
            }
            Target::Replica(index) => match fault.kind {
                FaultKind::ReplicaKilled => self.engines.get_mut(index)?.kill(),
                FaultKind::ReplicaFrozen => self.engines.get(index)?.process().suspend(),
                FaultKind::NetworkSlow => {
                    self.network(index)?.set_round_trip(SLOW_ROUND_TRIP);
                    Ok(())
                }
                FaultKind::NetworkSilent => {
                    self.network(index)?.blackhole();
                    Ok(())
                }
                FaultKind::NetworkCut => {
                    self.network(index)?.cut();
                    Ok(())
                }
                kind => self.order(index, &order(kind, length)).await,
            },
        }
    }

    /// Ends a fault.
    pub(super) async fn heal(&mut self, fault: &PlannedFault) -> anyhow::Result<()> {
        match fault.target {
            Target::Service(index) => {
                let service = self.stack.services_mut().nth(index);
                let service = service.with_context(|| format!("no service {index}"))?;
                match fault.kind {
                    FaultKind::ServiceKilled => service.start().await,
                    _ => service.process()?.resume(),
                }
            }
            Target::Envoy(index) => {
                let envoy = self.stack.envoys_mut().nth(index);
                let envoy = envoy.with_context(|| format!("no Envoy {index}"))?;
                match fault.kind {
                    FaultKind::EnvoyKilled => envoy.restart().await,
                    _ => envoy.process().resume(),
                }
            }
            Target::Replica(index) => match fault.kind {
                // An engine loses the requests that it got while it hung, so they end with it.
                FaultKind::ReplicaKilled | FaultKind::ReplicaHanging => {
                    self.engines.get_mut(index)?.restart().await
                }
                FaultKind::ReplicaFrozen => self.engines.get(index)?.process().resume(),
                FaultKind::NetworkSlow => {
                    self.network(index)?.set_round_trip(Duration::ZERO);
                    Ok(())
                }
                FaultKind::NetworkSilent | FaultKind::NetworkCut => {
                    self.network(index)?.restore();
                    Ok(())
                }
                _ => {
                    let healthy = json!({ "slow": 1, "error_share": 0 });
                    self.order(index, &healthy).await
                }
            },
        }
    }

    /// Reads what the services and Envoys use.
    pub(super) fn read_resources(&self, resources: &mut Resources) -> anyhow::Result<()> {
        for (name, process) in self.processes()? {
            resources.read(&name, process)?;
        }
        Ok(())
    }

    /// The services and Envoys, by name.
    pub(super) fn processes(&self) -> anyhow::Result<Vec<(String, &Process)>> {
        let mut processes = Vec::new();
        for (index, service) in self.stack.services().enumerate() {
            processes.push((format!("service {index}"), service.process()?));
        }
        for (index, envoy) in self.stack.envoys().enumerate() {
            processes.push((format!("Envoy {index}"), envoy.process()));
        }
        Ok(processes)
    }

    /// Reads how often each engine got each request.
    pub(super) async fn received(&self) -> anyhow::Result<Vec<BTreeMap<String, u32>>> {
        let mut received = Vec::new();
        for address in self.engines.addresses() {
            let url = format!("http://{address}/debug/requests");
            let response = self.http.get(url).send().await?.error_for_status()?;
            received.push(response.json().await?);
        }
        Ok(received)
    }

    /// The load of each engine.
    pub(super) async fn loads(&self) -> anyhow::Result<Vec<Value>> {
        let mut loads = Vec::new();
        for engine in self.engines.iter() {
            loads.push(engine.load().await?);
        }
        Ok(loads)
    }

    fn network(&self, index: usize) -> anyhow::Result<&NetworkConditions> {
        let link = self.links.get(index);
        let (_, conditions) = link.with_context(|| format!("no replica {index}"))?;
        Ok(conditions)
    }

    /// Orders a fault from an engine, which may still refuse connections for a moment.
    async fn order(&self, index: usize, order: &Value) -> anyhow::Result<()> {
        let url = format!("http://{}/fault", self.engines.get(index)?.address());
        wait_for(ORDER_MAX, "an engine to take an order", || async {
            match self.http.post(&url).json(order).send().await {
                Ok(response) => Ok(Some(response.error_for_status()?)),
                Err(error) if error.is_connect() => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
        .await
        .map(drop)
    }
}

/// The order to an engine for a fault of this length, ms.
fn order(kind: FaultKind, length: u128) -> Value {
    match kind {
        FaultKind::ReplicaSlow => json!({ "slow": SLOW }),
        FaultKind::ReplicaFailing => json!({ "error_share": ERROR_SHARE, "error_status": 500 }),
        FaultKind::ReplicaBusy => json!({ "error_share": ERROR_SHARE, "error_status": 503 }),
        FaultKind::ReplicaRefusing => {
            json!({ "refuse_ms": u64::try_from(length).unwrap_or(u64::MAX) })
        }
        _ => json!({ "hang": true }),
    }
}
