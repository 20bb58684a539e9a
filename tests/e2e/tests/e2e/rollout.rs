//! Rollouts under load break no stream: a test does to the processes what Kubernetes does to the pods that the chart renders.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use isotherm_e2e::admin::wait_for_metric;
use isotherm_e2e::load::{RequestRecord, check_all_succeeded};
use isotherm_e2e::{Client, GatewayShape, Load, MODEL, WAIT_MAX, chat, permit, with_long_timeouts};
use isotherm_harness::tools::repository_file;
use isotherm_harness::{Document, EngineOptions, Engines, Pool, Stack, TcpServer, wait_for};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use super::sidecar::pre_stop;

const CLIENTS: usize = 6;
const CLUSTERS: &str = "static_resources/clusters";
/// Where a gateway names the cluster of its endpoint picker.
const PICKER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm/routes/0/typed_per_filter_config/envoy.filters.http.ext_proc/overrides/grpc_service/envoy_grpc/cluster_name";

/// The chart's defaults, as helm rendered them: services behind a gateway.
const SERVICES: &str = "tests/mesh/golden/chart-defaults.json";
/// The chart with an Envoy in the pod.
const STANDALONE: &str = "deploy/mesh/standalone.yaml";

/// The Deployment of a manifest, and the service's configuration in its ConfigMap.
fn deployment(manifest: &str) -> anyhow::Result<(Document, Document)> {
    let text = fs::read_to_string(repository_file(manifest))?;
    let objects: Vec<Value> = match manifest.ends_with(".json") {
        true => serde_json::from_str(&text)?,
        false => serde_saphyr::from_multiple(&text)?,
    };
    let of_kind = |kind: &str| {
        let mut objects = objects.iter();
        let found = objects.find(|object| object["kind"] == kind);
        found.with_context(|| format!("{manifest} has no {kind}"))
    };
    let config = of_kind("ConfigMap")?["data"]["isotherm.yaml"].as_str();
    let config = Document::parse(config.context("the ConfigMap has no isotherm.yaml")?)?;
    let deployment = Document(of_kind("Deployment")?.clone());
    // A new pod is ready before an old one stops.
    ensure!(deployment.get("spec/strategy/rollingUpdate/maxUnavailable")? == 0);
    Ok((deployment, config))
}

/// A number of seconds in the Deployment's pods.
fn seconds(deployment: &Document, path: &str) -> anyhow::Result<Duration> {
    let value = deployment.get(&format!("spec/template/spec/{path}"))?;
    let value = value
        .as_u64()
        .with_context(|| format!("{path} is no number"))?;
    Ok(Duration::from_secs(value))
}

/// A streamed answer that takes longer than the pause of `preStop`.
fn stream(client: usize, _: usize) -> Value {
    let mut body = chat(&format!("Client {client} begins like this. ").repeat(80));
    body["stream"] = json!(true);
    body["max_tokens"] = json!(140);
    body
}

async fn engines(name: &str) -> anyhow::Result<Engines> {
    let options = EngineOptions {
        speed: 1.0,
        ..EngineOptions::default()
    };
    Engines::start(name, &Pool::new(MODEL).replicas(2).engine(options)).await
}

/// Every stream is whole, and some ran at the time of each stop.
fn check_streams(records: &[RequestRecord], stops: &[Instant]) -> anyhow::Result<()> {
    check_all_succeeded(records)?;
    for record in records {
        let text = record.response.as_ref().map(|response| response.text());
        ensure!(
            text.is_ok_and(|text| text.ends_with("[DONE]\n\n")),
            "{record:?}"
        );
    }
    for stop in stops {
        let is_across = |record: &&RequestRecord| record.sent < *stop && record.ended > *stop;
        let across = records.iter().filter(is_across).count();
        ensure!(across > 0, "no stream ran at the time of a stop");
    }
    Ok(())
}

/// The endpoints of the Service `isotherm` as a gateway sees them: Envoy reads them from a file.
struct Endpoints(PathBuf);

impl Endpoints {
    fn write(&self, services: &[SocketAddr]) -> anyhow::Result<()> {
        let endpoints = services.iter().map(|service| {
            let address = json!({ "address": service.ip(), "port_value": service.port() });
            json!({ "endpoint": { "address": { "socket_address": address } } })
        });
        let assignment = json!({
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "picker", "endpoints": [{ "lb_endpoints": Vec::from_iter(endpoints) }]
        });
        // Envoy notices a file that is moved into its place.
        let next = self.0.with_extension("next");
        fs::write(&next, json!({ "resources": [assignment] }).to_string())?;
        Ok(fs::rename(next, &self.0)?)
    }
}

/// Lets Envoy be a gateway that calls the services by an InferencePool, fails closed, and checks no health.
fn call_picker(document: &mut Document, endpoints: &Path) -> anyhow::Result<()> {
    GatewayShape::Istio.apply(document)?;
    let mut cluster = Document(document.get(&format!("{CLUSTERS}/name=isotherm"))?.clone());
    let source = json!({ "path_config_source": { "path": endpoints } });
    for member in ["load_assignment", "health_checks"] {
        cluster.remove(member)?;
    }
    cluster.set("name", "picker")?;
    cluster.set("type", "EDS")?;
    cluster.set("eds_cluster_config", json!({ "eds_config": source }))?;
    document.push(CLUSTERS, cluster.0)?;
    document.set(PICKER, "picker")
}

#[tokio::test]
async fn services_that_are_replaced_one_by_one_break_no_stream() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (deployment, config) = deployment(SERVICES)?;
    let pause = seconds(&deployment, "containers/0/lifecycle/preStop/sleep/seconds")?;
    let grace = seconds(&deployment, "terminationGracePeriodSeconds")?;
    let drain_ms = config.get("drain_ms_max")?.clone();
    let folder = tempfile::tempdir()?;
    let endpoints = Endpoints(folder.path().join("endpoints.json"));
    endpoints.write(&[])?;
    let file = endpoints.0.clone();
    let engines = engines("rollout-engines").await?;
    let pool = Pool::new(MODEL).with_addresses(engines.addresses());
    let stack = Stack::builder("rollout-services").pool(pool).services(2);
    let stack = with_long_timeouts(stack)
        .service(move |config| config.set("drain_ms_max", drain_ms))
        .envoy(move |document| call_picker(document, &file))
        .without_service();
    let mut stack = stack.start().await?;
    let mut services: Vec<SocketAddr> = Vec::new();
    for service in stack.services_mut() {
        service.start().await?;
        services.push(service.address());
    }
    endpoints.write(&services)?;
    wait_until_served(&stack).await?;
    let load = Load::start(&stack.url(""), CLIENTS, stream)?;
    load.wait_for_each_client().await?;

    let mut stops = Vec::new();
    for (number, stopped) in services.iter().enumerate() {
        // Kubernetes takes a pod that ends out of its Service, runs `preStop`, and sends SIGTERM.
        let others: Vec<SocketAddr> = services
            .iter()
            .filter(|one| *one != stopped)
            .copied()
            .collect();
        endpoints.write(&others)?;
        sleep(pause).await;
        let service = stack.services_mut().nth(number).context("no service")?;
        let has_requests = |open| open > 0.0;
        wait_for_metric(service, "isotherm_open_requests", &[], has_requests).await?;
        stops.push(Instant::now());
        service.stop(grace - pause).await?;
        service.start().await?;
        endpoints.write(&services)?;
        load.wait_for_each_client().await?;
    }

    check_streams(&load.stop().await?, &stops)
}

async fn wait_until_served(stack: &Stack) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    wait_for(WAIT_MAX, "the gateway to serve", || async {
        let response = client.chat("", &chat("hello")).await;
        Ok(response
            .ok()
            .filter(|response| response.status == 200)
            .map(drop))
    })
    .await
}

/// The Service of clients: a new connection goes to the pod that is ready, an open one stays where it is.
struct ClientService {
    server: TcpServer,
    pod: Arc<Mutex<SocketAddr>>,
}

impl ClientService {
    async fn start(pod: SocketAddr) -> anyhow::Result<Self> {
        let pod = Arc::new(Mutex::new(pod));
        let chosen = Arc::clone(&pod);
        let server = TcpServer::start(move |mut client| {
            let pod = *chosen.lock().unwrap_or_else(PoisonError::into_inner);
            async move {
                if let Ok(mut pod) = TcpStream::connect(pod).await {
                    // The client sees a broken connection as such.
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut pod).await;
                }
            }
        });
        Ok(Self {
            server: server.await?,
            pod,
        })
    }

    fn select(&self, pod: SocketAddr) {
        *self.pod.lock().unwrap_or_else(PoisonError::into_inner) = pod;
    }
}

/// A pod with an Envoy and a service of its own.
async fn pod(name: &str, engines: &Engines, drain_ms: Value) -> anyhow::Result<Stack> {
    let pool = Pool::new(MODEL).with_addresses(engines.addresses());
    let stack = with_long_timeouts(Stack::builder(name).pool(pool));
    let stack = stack.service(move |config| config.set("drain_ms_max", drain_ms));
    stack.start().await
}

#[tokio::test]
async fn a_standalone_pod_that_is_replaced_breaks_no_stream() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (deployment, config) = deployment(STANDALONE)?;
    let grace = seconds(&deployment, "terminationGracePeriodSeconds")?;
    let drain_ms = config.get("drain_ms_max")?;
    let engines = engines("rollout-pod-engines").await?;
    let mut old = pod("rollout-old", &engines, drain_ms.clone()).await?;
    let clients = ClientService::start(old.envoy().address()).await?;
    let url = format!("http://{}", clients.server.address());
    let load = Load::start(&url, CLIENTS, stream)?;
    load.wait_for_each_client().await?;

    let new = pod("rollout-new", &engines, drain_ms.clone()).await?;
    let stop = Instant::now();
    clients.select(new.envoy().address());
    let mut hook = pre_stop(old.envoy())?.spawn()?;
    let status = timeout(grace, hook.wait()).await??;
    ensure!(status.success(), "{status}");
    let pid = old.envoy().process().id().to_string();
    let signal = Command::new("kill").args(["-TERM", &pid]).status().await?;
    ensure!(signal.success(), "no SIGTERM for Envoy");
    // The service is a sidecar: it stops behind Envoy.
    old.service_mut().stop(grace).await?;
    load.wait_for_each_client().await?;

    check_streams(&load.stop().await?, &[stop])
}
