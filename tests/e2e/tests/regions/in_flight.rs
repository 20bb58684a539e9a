//! Forwarded requests without a first byte go elsewhere when the region that has them dies.

use isotherm_e2e::regions::{
    client, forwarded, occupy, scripted_regions, wait_until_connected, wait_until_reachable,
    wait_until_unavailable,
};
use isotherm_e2e::{Action, HttpResponse, MisbehavingPeer, ScriptedReplica, admin, permit};
use isotherm_harness::Regions;
use tokio::task::JoinHandle;

type PendingResponse = JoinHandle<anyhow::Result<HttpResponse>>;

/// Three regions, and three requests that us has forwarded to eu: eu's replica holds the first, two wait in eu's queue.
/// us is full. asia has capacity; us could not reach it when it forwarded.
struct Scenario {
    us: ScriptedReplica,
    eu: ScriptedReplica,
    asia: ScriptedReplica,
    regions: Regions,
    /// The request that occupies us.
    busy: PendingResponse,
    /// The forwarded requests.
    forwarded: Vec<PendingResponse>,
    _misbehaving: MisbehavingPeer,
}

async fn forward_to_eu(name: &str) -> anyhow::Result<Scenario> {
    let [us, eu, asia] = ScriptedReplica::start_all(["us", "eu", "asia"]).await?;
    // Reports free capacity in eu's name, so that us forwards all three whatever eu's last heartbeat was.
    let misbehaving = MisbehavingPeer::start().await?;
    let regions = scripted_regions(name, &[&us, &eu, &asia], 1)
        .plaintext()
        .start()
        .await?;
    let link = regions.link("us", "eu")?;
    link.peering.connect_to(vec![misbehaving.address()]);
    link.conditions.reset_connections();
    wait_until_connected(&regions).await?;
    eu.set_action(Action::Hold);
    let busy = occupy(&regions, &us).await?;
    regions.link("us", "asia")?.conditions.cut();
    wait_until_unavailable(&regions, "us", "asia").await?;
    let client = client(&regions, "us")?;
    let mut pending = vec![client.spawn_chat("number 1")];
    eu.wait_until_holding(1).await?;
    pending.extend([client.spawn_chat("number 2"), client.spawn_chat("number 3")]);
    admin::wait_for_pool(regions.region("eu")?.service(), "queue_length", 2).await?;
    assert_eq!(forwarded(&regions, "us", "eu").await?, 3);
    regions.link("us", "asia")?.conditions.restore();
    wait_until_reachable(&regions, "us", "asia").await?;
    Ok(Scenario {
        us,
        eu,
        asia,
        regions,
        busy,
        forwarded: pending,
        _misbehaving: misbehaving,
    })
}

/// The replicas that served the requests.
async fn served_by(pending: Vec<PendingResponse>) -> anyhow::Result<Vec<String>> {
    let mut replicas = Vec::new();
    for response in pending {
        let response = response.await??.success()?;
        replicas.push(response.served_by().unwrap_or_default().to_owned());
    }
    Ok(replicas)
}

/// asia takes one request at a time, so others may wait in asia or in us; none returns to eu.
#[tokio::test]
async fn requests_queued_in_a_region_go_elsewhere_when_its_envoy_dies() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut scenario = forward_to_eu("envoy-dies").await?;

    scenario.regions.region_mut("eu")?.envoy_mut().kill()?;

    assert_eq!(served_by(scenario.forwarded).await?, ["asia"; 3]);
    assert_eq!(scenario.asia.received().len(), 3, "each was sent once");
    assert_eq!(scenario.eu.received().len(), 1, "two waited in the queue");
    scenario.us.release_all();
    assert_eq!(scenario.busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn requests_queued_in_a_region_go_elsewhere_when_its_service_dies() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut scenario = forward_to_eu("service-dies").await?;

    scenario.regions.region_mut("eu")?.service_mut().kill()?;

    let queued = scenario.forwarded.split_off(1);
    assert_eq!(served_by(queued).await?, ["asia"; 2]);
    // A request that has a replica stays there.
    scenario.eu.release_all();
    assert_eq!(served_by(scenario.forwarded).await?, ["eu"]);
    let received = (scenario.asia.received().len(), scenario.eu.received().len());
    assert_eq!(received, (2, 1));
    scenario.us.release_all();
    assert_eq!(scenario.busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn requests_queued_behind_a_network_black_hole_go_elsewhere() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let scenario = forward_to_eu("black-hole-network").await?;

    scenario.regions.link("us", "eu")?.conditions.blackhole();

    assert_eq!(served_by(scenario.forwarded).await?, ["asia"; 3]);
    assert_eq!(scenario.asia.received().len(), 3, "each was sent once");
    scenario.us.release_all();
    assert_eq!(scenario.busy.await??.status, 200);
    Ok(())
}
