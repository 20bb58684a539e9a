//! Regions that own their replicas by Lease objects.

use isotherm_e2e::regions::{
    scripted_regions, wait_for_own_lease, wait_until_connected, wait_until_managing,
};
use isotherm_e2e::{Load, ScriptedReplica, admin, chat, load, permit};
use isotherm_harness::ControlPlane;
use isotherm_harness::control_plane::{NAMESPACE, User};
use serde_json::Value;

use super::programs;

/// Longer than that of other tests: an API server starts slowly.
const LEASE_MS: u64 = 6_000;

async fn spec(plane: &ControlPlane, region: &str) -> anyhow::Result<Value> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases");
    let path = format!("{leases}/isotherm-region-{region}");
    let object = plane.request("GET", &path, None).await?;
    Ok(object["spec"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_takes_the_lease_object_of_a_dead_one_and_gives_it_back() -> anyhow::Result<()> {
    let Some(programs) = programs() else {
        return Ok(());
    };
    let _permit = permit::exclusive().await?;
    let mut plane = ControlPlane::start("kubernetes-leases", &programs).await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let mut regions = scripted_regions("leases-kubernetes", &[&us, &eu], 8)
        .lease_objects(plane.kubeconfig(User::Service)?)
        .service(|_, config| config.set("region/store/lease_ms", LEASE_MS))
        .start()
        .await?;
    wait_until_connected(&regions).await?;
    let service = regions.region("us")?.service();
    admin::wait_for_log(
        service,
        "bind a Role with the verbs list, create and update on leases",
    )
    .await?;
    plane.bind_lease_role().await?;
    for region in ["us", "eu"] {
        wait_for_own_lease(&regions, region).await?;
    }
    let before = spec(&plane, "eu").await?;
    assert_eq!(before["holderIdentity"], "eu");
    let prompt = |client: usize, turn: usize| chat(&format!("Request {turn} of {client}. "));
    let load = Load::start(&regions.region("us")?.url(""), 2, prompt)?;

    regions.region_mut("eu")?.service_mut().kill()?;
    wait_until_managing(&regions, "us", &[&us, &eu]).await?;
    let taken = spec(&plane, "eu").await?;
    assert_eq!(taken["holderIdentity"], "us");
    let transitions = |spec: &Value| spec["leaseTransitions"].as_i64();
    assert_eq!(
        transitions(&taken),
        transitions(&before).map(|count| count + 1)
    );

    plane.kill_server()?;
    wait_until_managing(&regions, "us", &[&us]).await?;
    load.wait_for_requests(10).await?;
    plane.start_server().await?;
    wait_until_managing(&regions, "us", &[&us, &eu]).await?;

    regions.region_mut("eu")?.service_mut().start().await?;
    wait_until_managing(&regions, "us", &[&us]).await?;
    wait_for_own_lease(&regions, "eu").await?;
    assert_eq!(spec(&plane, "eu").await?["holderIdentity"], "eu");
    load::check_all_succeeded(&load.stop().await?)
}
