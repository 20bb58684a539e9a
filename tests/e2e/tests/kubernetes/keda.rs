//! The real KEDA operator beside a real API server reads the service's numbers, by pull and by push.
//!
//! No controller runs a pod. The operator creates a HorizontalPodAutoscaler for each ScaledObject, and its own metrics show the values
//! that it reads.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use isotherm_e2e::{WAIT_MAX, permit};
use isotherm_harness::control_plane::{NAMESPACE, Programs, User};
use isotherm_harness::process::Process;
use isotherm_harness::{ControlPlane, Document, Service, port, tools, wait_for};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SCALED_OBJECTS: &str = "/apis/keda.sh/v1alpha1/namespaces/models/scaledobjects";
const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/models/horizontalpodautoscalers";
/// The trigger of each ScaledObject.
const TRIGGERS: [(&str, &str); 2] = [("pull", "external"), ("push", "external-push")];

const SERVICE: &str = "keda-service";

/// The operator and its definitions, besides the control plane.
struct KedaPrograms {
    operator: PathBuf,
    definitions: PathBuf,
}

/// Finds the programs; `None` means that the test is skipped.
fn programs() -> Option<(Programs, KedaPrograms)> {
    let find = || -> anyhow::Result<_> {
        let operator = tools::mesh_program("keda-operator")?;
        let definitions = tools::mesh_program("keda-crds")?;
        Ok((
            Programs::find()?,
            KedaPrograms {
                operator,
                definitions,
            },
        ))
    };
    find()
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()
}

/// Engines whose KV caches are used to a share, in percent.
async fn start_engines(usage: &Arc<AtomicU32>) -> anyhow::Result<[SocketAddr; 2]> {
    let mut addresses = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        let usage = Arc::clone(usage);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let share = f64::from(usage.load(Ordering::Relaxed)) / 100.0;
                let page = format!(
                    "vllm:num_requests_waiting{{engine=\"0\"}} 0\n\
                     vllm:num_requests_running{{engine=\"0\"}} 2\n\
                     vllm:kv_cache_usage_perc{{engine=\"0\"}} {share}\n\
                     vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"}} 1\n"
                );
                let mut request = [0; 4_096];
                let _ = stream.read(&mut request).await;
                let length = page.len();
                let response = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{page}"
                );
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
    }
    addresses.try_into().ok().context("two engines")
}

fn directory_of_service() -> PathBuf {
    tools::output_directory().join("stacks").join(SERVICE)
}

/// A service without the state file of an earlier run.
fn service(engines: &[SocketAddr], keda: SocketAddr) -> anyhow::Result<Service> {
    let _ = fs::remove_dir_all(directory_of_service());
    let engines: Vec<String> = engines.iter().map(SocketAddr::to_string).collect();
    let scaling = json!({
        "mode": "act", "replicas_min": 1, "replicas_max": 6, "stabilisation_ms": 1_000, "startup_ms": 1_000
    });
    let pool = json!({ "model": "llama", "replicas": { "static": engines }, "scaling": scaling });
    let config = json!({
        "admin": {}, "pools": [pool], "scaling": { "keda_listen": keda.to_string(), "state_file": "scaling.json" }
    });
    Service::alone(SERVICE, Document(config))
}

/// The operator, which ends when its first start has written its certificates.
async fn start_operator(
    plane: &ControlPlane,
    programs: &KedaPrograms,
    directory: &Path,
    metrics: SocketAddr,
) -> anyhow::Result<Process> {
    let certificates = directory.join("certificates");
    fs::create_dir_all(&certificates)?;
    let [probe, grpc] = [port::reserve()?, port::reserve()?];
    let kubeconfig = plane.kubeconfig(User::Admin)?;
    let command = || {
        let mut command = Command::new(&programs.operator);
        command
            .env("KEDA_CLUSTER_OBJECT_NAMESPACE", "keda")
            .env("POD_NAMESPACE", "keda")
            .env("POD_NAME", "keda-0")
            .env("WATCH_NAMESPACE", "")
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--cert-dir")
            .arg(&certificates)
            .arg(format!("--metrics-bind-address={metrics}"))
            .arg(format!("--health-probe-bind-address={}", probe.address()))
            .arg(format!("--metrics-service-bind-address={}", grpc.address()))
            .args([
                "--enable-cert-rotation=true",
                "--enable-webhook-patching=false",
            ])
            .arg("--enable-apiservice-patching=false");
        command
    };
    let log = directory.join("keda-operator.log");
    let first = Process::start("keda-operator", &mut command(), &log)?;
    let secret = wait_for(WAIT_MAX, "KEDA's certificates", || async {
        let path = "/api/v1/namespaces/keda/secrets/kedaorg-certs";
        let secret = plane.request("GET", path, None).await.ok();
        Ok(secret.filter(|secret| {
            secret["data"]
                .as_object()
                .is_some_and(|data| data.len() >= 4)
        }))
    })
    .await?;
    drop(first);
    // In a cluster the kubelet mounts the Secret.
    for (name, value) in secret["data"].as_object().into_iter().flatten() {
        let value = value.as_str().context("a Secret's value is text")?;
        fs::write(certificates.join(name), STANDARD.decode(value)?)?;
    }
    Process::start("keda-operator", &mut command(), &log)
}

/// Creates a Deployment and a ScaledObject of its own for each trigger.
async fn create_scaled_objects(plane: &ControlPlane, keda: SocketAddr) -> anyhow::Result<()> {
    for (name, trigger) in TRIGGERS {
        let labels = json!({ "app": name });
        let container = json!({ "name": "engine", "image": "engine" });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": {
                "replicas": 2, "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } }
            }
        });
        plane
            .create("/apis/apps/v1/namespaces/models/deployments", &deployment)
            .await?;
        let metadata = json!({ "scalerAddress": keda.to_string(), "pool": "llama" });
        let object = json!({
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": { "name": name },
            "spec": {
                "scaleTargetRef": { "name": name }, "pollingInterval": 1, "minReplicaCount": 1, "maxReplicaCount": 6,
                "triggers": [{ "type": trigger, "metadata": metadata }]
            }
        });
        plane.create(SCALED_OBJECTS, &object).await?;
    }
    Ok(())
}

/// Version of the pool's number; a service without a state file begins anew.
async fn epoch(service: &Service) -> anyhow::Result<Option<u64>> {
    let view = service.get("/api/scaling").await?;
    Ok(view["pools"][0]["epoch"].as_u64())
}

/// Waits until the state file has the number that the service publishes, and returns the number's version.
async fn wait_for_saved_epoch(service: &Service) -> anyhow::Result<u64> {
    let file = directory_of_service().join("scaling.json");
    wait_for(WAIT_MAX, "the number in the state file", || async {
        let Ok(text) = fs::read_to_string(&file) else {
            return Ok(None);
        };
        let state: Value = serde_json::from_str(&text)?;
        let saved = state["pools"]["llama"]["steps"]["epoch"].as_u64();
        let published = epoch(service).await?;
        Ok(saved.filter(|saved| Some(*saved) == published))
    })
    .await
}

/// Waits until the operator's last value of each ScaledObject is `expected`.
async fn wait_for_values(metrics: SocketAddr, expected: f64) -> anyhow::Result<()> {
    wait_for(WAIT_MAX, &format!("KEDA to read {expected}"), || async {
        let Ok(page) = reqwest::get(format!("http://{metrics}/metrics")).await else {
            return Ok(None);
        };
        let page = page.text().await.unwrap_or_default();
        let value = |name: &str| {
            let line = page.lines().find(|line| {
                line.starts_with("keda_scaler_metrics_value{")
                    && line.contains(&format!("scaledObject=\"{name}\""))
            });
            line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        };
        let are_read = TRIGGERS
            .iter()
            .all(|(name, _)| value(name).is_some_and(|value| (value - expected).abs() < 1e-9));
        Ok(are_read.then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn keda_scales_by_the_services_numbers() -> anyhow::Result<()> {
    let Some((programs, keda_programs)) = programs() else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let usage = Arc::new(AtomicU32::new(50));
    let engines = start_engines(&usage).await?;
    let [keda, metrics] = [port::reserve()?, port::reserve()?];
    let mut service = service(&engines, keda.address())?;
    service.start().await?;

    let plane = ControlPlane::start("keda", &programs).await?;
    plane.create_definitions(&keda_programs.definitions).await?;
    wait_for(WAIT_MAX, "ScaledObjects to be served", || async {
        Ok(plane.request("GET", SCALED_OBJECTS, None).await.ok())
    })
    .await?;
    let namespace =
        json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "keda" } });
    plane.create("/api/v1/namespaces", &namespace).await?;
    let directory = tools::output_directory()
        .join("stacks")
        .join("keda-operator");
    let _ = fs::remove_dir_all(&directory);
    let _operator = start_operator(&plane, &keda_programs, &directory, metrics.address()).await?;
    create_scaled_objects(&plane, keda.address()).await?;

    for (name, _) in TRIGGERS {
        let autoscaler = wait_for(WAIT_MAX, "the HorizontalPodAutoscaler", || async {
            Ok(plane
                .request("GET", &format!("{AUTOSCALERS}/keda-hpa-{name}"), None)
                .await
                .ok())
        })
        .await?;
        check_autoscaler(&autoscaler, name);
    }
    wait_for_values(metrics.address(), 2.0).await?;
    usage.store(95, Ordering::Relaxed);
    wait_for_values(metrics.address(), 3.0).await?;
    usage.store(2, Ordering::Relaxed);
    wait_for_values(metrics.address(), 1.0).await?;

    // The restarted service goes on from its state file. From one replica it rises past two, which KEDA may not see.
    let before = wait_for_saved_epoch(&service).await?;
    service.kill()?;
    service.start().await?;
    let after = wait_for(WAIT_MAX, "a number after the restart", || epoch(&service)).await?;
    assert!(before > 1 && after >= before, "{before} {after}");
    usage.store(95, Ordering::Relaxed);
    wait_for_values(metrics.address(), 3.0).await?;
    for (name, _) in TRIGGERS {
        let object = plane
            .request("GET", &format!("{SCALED_OBJECTS}/{name}"), None)
            .await?;
        let conditions = object["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let is_ready = conditions
            .iter()
            .any(|c| c["type"] == "Ready" && c["status"] == "True");
        assert!(is_ready, "{NAMESPACE}/{name}: {conditions:?}");
    }
    Ok(())
}

/// Checks what the operator made of the service's metric.
fn check_autoscaler(autoscaler: &Value, name: &str) {
    let spec = &autoscaler["spec"];
    assert_eq!(spec["scaleTargetRef"]["name"], name, "{spec}");
    assert_eq!(
        (&spec["minReplicas"], &spec["maxReplicas"]),
        (&json!(1), &json!(6)),
        "{spec}"
    );
    let metric = &spec["metrics"][0]["external"];
    let metric_name = metric["metric"]["name"].as_str().unwrap_or_default();
    assert!(metric_name.contains("isotherm-desired-replicas"), "{spec}");
    assert_eq!(
        metric["target"],
        json!({ "type": "AverageValue", "averageValue": "1" }),
        "{spec}"
    );
}
