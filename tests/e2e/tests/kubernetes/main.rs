//! The service beside a real API server of Kubernetes. `cargo xtask mesh-tools` builds the programs; without them, each
//! test is skipped and says which one is missing.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that is missing fails the test"
)]

mod keda;
mod leases;
mod siblings;

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{WAIT_MAX, admin, permit};
use isotherm_harness::control_plane::{NAMESPACE, Programs, User, pod, pod_path, pod_status};
use isotherm_harness::{ControlPlane, Document, Service, wait_for, wait_until};
use serde_json::{Value, json};

/// Pods of the test that follows changes.
const PODS: u16 = 200;
/// Pods of the test of the memory.
const MANY_PODS: u16 = 2_000;
/// Size of an annotation of each of these, so that they are as large as real pods.
const ANNOTATION_BYTES: usize = 8_000;
const RESIDENT_BYTES_MAX: u64 = 150_000_000;

/// Finds the programs; `None` means that the test is skipped.
fn programs() -> Option<Programs> {
    Programs::find()
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()
}

/// A service with one pool that follows the InferencePool `llm`.
fn service(name: &str, plane: &ControlPlane) -> anyhow::Result<Service> {
    // A refused connection is a probe, too. Fewer of them leave the cores to the API server.
    let probe = json!({ "interval_ms": 5_000, "timeout_ms": 60_000 });
    let kubernetes = json!({ "inference_pool": "llm", "namespace": NAMESPACE });
    let pool =
        json!({ "model": "llama", "probe": probe, "replicas": { "kubernetes": kubernetes } });
    let config = Document(json!({ "admin": {}, "pools": [pool] }));
    let mut service = Service::alone(&format!("{name}-service"), config)?;
    service.set_environment("KUBECONFIG", plane.kubeconfig(User::Service)?);
    Ok(service)
}

/// The name and the address of a pod.
fn named(number: u16) -> (String, String) {
    let [high, low] = number.to_be_bytes();
    (format!("engine-{number}"), format!("127.1.{high}.{low}"))
}

/// Creates pods and makes them ready.
async fn create(
    plane: &ControlPlane,
    numbers: std::ops::Range<u16>,
    bytes: usize,
) -> anyhow::Result<()> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    plane
        .request_each(numbers.clone(), |number| {
            (
                "POST",
                pods.clone(),
                Some(pod(&named(number).0, "a", bytes)),
            )
        })
        .await?;
    set_ready(plane, numbers, true).await
}

async fn set_ready(
    plane: &ControlPlane,
    numbers: impl IntoIterator<Item = u16>,
    is_ready: bool,
) -> anyhow::Result<()> {
    plane
        .request_each(numbers, |number| {
            let (name, ip) = named(number);
            (
                "PATCH",
                format!("{}/status", pod_path(&name)),
                Some(pod_status(&ip, is_ready)),
            )
        })
        .await
}

/// Active and draining replicas.
async fn replicas(service: &Service) -> anyhow::Result<(usize, usize)> {
    let replicas = service.get("/api/replicas").await?;
    let replicas = replicas.as_array().context("no list of replicas")?;
    let draining = replicas
        .iter()
        .filter(|replica| replica["draining"] == true)
        .count();
    Ok((replicas.len() - draining, draining))
}

/// Waits until so many replicas are active and so many drain, and prints how long that took.
async fn wait_for_replicas(
    service: &Service,
    what: &str,
    active: usize,
    draining: usize,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let condition = format!("{active} active and {draining} draining replicas ({what})");
    let waited = wait_for(WAIT_MAX, &condition, || async {
        Ok((replicas(service).await? == (active, draining)).then_some(()))
    });
    if let Err(error) = waited.await {
        return Err(error.context(format!("last: {:?}", replicas(service).await?)));
    }
    println!("{what}: followed after {} ms", start.elapsed().as_millis());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_pods_and_pool_and_survive_the_api_server() -> anyhow::Result<()> {
    let Some(programs) = programs() else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let mut plane = ControlPlane::start("kubernetes", &programs).await?;
    plane.install_inference_pools().await?;
    plane.bind_role().await?;
    plane.create_pool("llm", "a", &[8000]).await?;
    let mut service = service("kubernetes", &plane)?;
    service.start().await?;

    let all = usize::from(PODS);
    create(&plane, 0..PODS, 0).await?;
    wait_for_replicas(&service, "pods become ready", all, 0).await?;
    set_ready(&plane, 0..50, false).await?;
    wait_for_replicas(&service, "50 become unready", all - 50, 50).await?;
    set_ready(&plane, 0..50, true).await?;
    wait_for_replicas(&service, "50 become ready again", all, 0).await?;

    // A deleted pod terminates until its node says that it has ended.
    plane
        .request_each(0..20, |number| ("DELETE", pod_path(&named(number).0), None))
        .await?;
    wait_for_replicas(&service, "20 terminate", all - 20, 20).await?;
    let now = json!({ "gracePeriodSeconds": 0 });
    plane
        .request_each(0..20, |number| {
            ("DELETE", pod_path(&named(number).0), Some(now.clone()))
        })
        .await?;
    wait_for_replicas(&service, "20 are deleted", all - 20, 0).await?;

    change_pool(&plane, &service).await?;
    restart_server(&mut plane, &service).await?;
    service.stop(WAIT_MAX).await
}

/// Changes the ports and the selector of the pool, which has 180 pods.
async fn change_pool(plane: &ControlPlane, service: &Service) -> anyhow::Result<()> {
    plane.change_pool("llm", "a", &[8000, 8001]).await?;
    wait_for_replicas(service, "the pool has two ports", 360, 0).await?;
    plane
        .request_each(20..60, |number| {
            let label = json!({ "metadata": { "labels": { "app": "b" } } });
            ("PATCH", pod_path(&named(number).0), Some(label))
        })
        .await?;
    wait_for_replicas(service, "40 pods lose their label", 280, 0).await?;
    plane.change_pool("llm", "b", &[8000]).await?;
    wait_for_replicas(service, "the pool selects the others", 40, 0).await?;
    plane.change_pool("llm", "a", &[8000]).await?;
    wait_for_replicas(service, "the pool selects the first again", 140, 0).await
}

/// Kills the API server in the middle of its watches, and starts it again. The pool has 140 replicas.
async fn restart_server(plane: &mut ControlPlane, service: &Service) -> anyhow::Result<()> {
    let before = addresses(service).await?;
    plane.kill_server()?;
    wait_until(WAIT_MAX, "the problem to show", || async {
        admin::pool(service)
            .await
            .is_ok_and(|pool| pool["source_problem"].is_string())
    })
    .await?;
    ensure!(
        addresses(service).await? == before,
        "replicas were lost while the server was away"
    );
    admin::wait_for_log(service, "cannot be reached").await?;
    let up = admin::metric(service, "isotherm_sources_up", &[]).await?;
    ensure!(up == Some(0.0), "{up:?}");
    plane.start_server().await?;
    plane
        .request_each(60..70, |number| {
            let now = json!({ "gracePeriodSeconds": 0 });
            ("DELETE", pod_path(&named(number).0), Some(now))
        })
        .await?;
    wait_for_replicas(service, "the server is back without 10 pods", 130, 0).await?;
    wait_until(WAIT_MAX, "the problem to be over", || async {
        let pool = admin::pool(service).await;
        pool.is_ok_and(|pool| pool["source_problem"].is_null())
    })
    .await?;
    let log = service.process()?.log();
    let warnings = log.matches("cannot be reached").count();
    ensure!(warnings == 1, "one outage has {warnings} warnings:\n{log}");
    Ok(())
}

async fn addresses(service: &Service) -> anyhow::Result<Vec<SocketAddr>> {
    let replicas = service.get("/api/replicas").await?;
    let replicas = replicas.as_array().context("no list of replicas")?;
    let addresses = replicas.iter().map(|replica| {
        let address = replica["address"].as_str().context("no address")?;
        Ok(address.parse()?)
    });
    addresses.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_pods_fit_into_150_mb() -> anyhow::Result<()> {
    let Some(programs) = programs() else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let plane = ControlPlane::start("kubernetes-memory", &programs).await?;
    plane.install_inference_pools().await?;
    plane.bind_role().await?;
    plane.create_pool("llm", "a", &[8000]).await?;
    let mut service = service("kubernetes-memory", &plane)?;
    service.start().await?;
    create(&plane, 0..MANY_PODS, ANNOTATION_BYTES).await?;
    let all = usize::from(MANY_PODS);
    wait_for_replicas(&service, "2,000 pods, each as an event", all, 0).await?;
    let followed = service.process()?.resident_bytes()?;
    // After a restart they come as a list.
    service.stop(WAIT_MAX).await?;
    service.start().await?;
    wait_for_replicas(&service, "2,000 pods as a list", all, 0).await?;
    let listed = service.process()?.resident_bytes()?;
    println!(
        "resident: {} MB, and {} MB after a restart",
        followed / 1_000_000,
        listed / 1_000_000
    );
    ensure!(
        followed.max(listed) < RESIDENT_BYTES_MAX,
        "{followed} and {listed} bytes are resident"
    );
    service.stop(WAIT_MAX).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_a_role_gets_one_message_that_says_what_to_do() -> anyhow::Result<()> {
    let Some(programs) = programs() else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let plane = ControlPlane::start("kubernetes-role", &programs).await?;
    let mut service = service("kubernetes-role", &plane)?;
    service.start_unready().await?;
    let problem = |expected: &'static str| {
        let service = &service;
        async move {
            wait_for(WAIT_MAX, expected, || async {
                let pool = admin::pool(service).await?;
                let has = |problem: &Value| problem.as_str().is_some_and(|p| p.contains(expected));
                Ok(has(&pool["source_problem"]).then_some(()))
            })
            .await
        }
    };
    problem("may not read inferencepools in namespace `models`: bind a Role").await?;
    admin::wait_for_log(&service, "bind a Role").await?;
    plane.bind_role().await?;
    problem("install the custom resource definitions").await?;
    plane.install_inference_pools().await?;
    problem("there is no InferencePool `llm` in namespace `models`").await?;
    plane.create_pool("llm", "a", &[8000]).await?;
    create(&plane, 0..1, 0).await?;
    wait_for_replicas(&service, "the role is bound and the pool is there", 1, 0).await?;
    let log = service.process()?.log();
    let forbidden = log.matches("bind a Role").count();
    ensure!(forbidden == 1, "{forbidden} messages in\n{log}");
    service.stop(WAIT_MAX).await
}
