//! Several regions of scripted replicas, and waiting for the state that each region has of the others.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use isotherm_harness::{Document, Regions, RegionsBuilder, Stack, envoy, wait_for};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::fixture::{Timeouts, long_probe_bounds, pool_of};
use crate::load::{RequestRecord, check_all_succeeded};
use crate::{Action, Client, HttpResponse, ScriptedReplica, WAIT_MAX, admin, lock};

/// Interval of heartbeats. A region counts as lost after three: longer than a busy machine delays a process.
const HEARTBEAT_MS: u64 = 1_000;

/// Longer than the time between two renewals of a lease.
const RENEWAL_TIME: Duration = Duration::from_secs(2);
/// Longer than a region waits before it takes the lease of a dead region. A test that sleeps this long shows that no lease is
/// taken; a busy machine can only weaken it.
pub const TAKEOVER_TIME: Duration = Duration::from_secs(6);

/// Regions with one scripted replica each, named after their replicas. Each replica gets at most `outstanding`
/// requests. A region notices a silent peer within [`Timeouts::Detecting`].
pub fn scripted_regions(
    name: &str,
    replicas: &[&ScriptedReplica],
    outstanding: u32,
) -> RegionsBuilder {
    let regions: Vec<(&str, &[&ScriptedReplica])> = replicas
        .iter()
        .map(|replica| (replica.name(), std::slice::from_ref(replica)))
        .collect();
    scripted_regions_of(name, &regions, outstanding)
}

/// Regions like [`scripted_regions`] with any number of replicas.
pub fn scripted_regions_of(
    name: &str,
    regions: &[(&str, &[&ScriptedReplica])],
    outstanding: u32,
) -> RegionsBuilder {
    let mut builder = Regions::builder(name);
    for (region, replicas) in regions {
        builder = builder.region(region, pool_of(replicas, outstanding));
    }
    let names: Vec<String> = regions.iter().map(|(name, _)| (*name).to_owned()).collect();
    builder
        .service(move |_, config| {
            config.set("pools/0/probe", long_probe_bounds())?;
            config.set("region/heartbeat_ms", HEARTBEAT_MS)
        })
        .envoy(move |region, document| {
            Timeouts::Long.apply_to_service(document)?;
            for peer in names.iter().filter(|peer| *peer != region) {
                let cluster = format!("static_resources/clusters/name=region-{peer}-gateways");
                Timeouts::Detecting.apply_to_cluster(document, &cluster)?;
            }
            envoy::show_decisions(document)
        })
}

/// A client of a region.
pub fn client(regions: &Regions, region: &str) -> anyhow::Result<Client> {
    Client::new(&regions.region(region)?.url(""))
}

/// Fills the region of a replica that takes one request: the response comes when the replica releases it.
pub async fn occupy(
    regions: &Regions,
    replica: &ScriptedReplica,
) -> anyhow::Result<JoinHandle<anyhow::Result<HttpResponse>>> {
    replica.set_action(Action::Hold);
    let client = client(regions, replica.name())?;
    let response = client.spawn_chat(&format!("What keeps {} busy", replica.name()));
    replica.wait_until_holding(1).await?;
    Ok(response)
}

/// Number of requests that `region` has forwarded to `peer`.
pub async fn forwarded(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<u64> {
    let service = regions.region(region)?.service();
    admin::counter(service, "isotherm_forwarded_total", &[("region", peer)]).await
}

/// Number of forwarded requests that `peer` has refused.
pub async fn returned(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<u64> {
    let service = regions.region(region)?.service();
    admin::counter(service, "isotherm_returned_total", &[("region", peer)]).await
}

/// The state that `region` has of `peer`, from `GET /api/regions`.
pub async fn peer_status(regions: &Regions, region: &str, peer: &str) -> anyhow::Result<Value> {
    let status = Document(regions.status(region).await?);
    let peer = status.get(&format!("peers/name={peer}"));
    peer.cloned().with_context(|| format!("in {}", status.0))
}

/// Waits until `peer` is in one of the `expected` states, as `region` sees it: `up`, `lost`.
pub async fn wait_for_peer_state(
    regions: &Regions,
    region: &str,
    peer: &str,
    expected: &[&str],
) -> anyhow::Result<()> {
    let condition = format!("{region} to see {peer} {expected:?}");
    let last = Mutex::new(Value::Null);
    wait_for(WAIT_MAX, &condition, || async {
        let status = peer_status(regions, region, peer).await?;
        let state = status.get("state").and_then(Value::as_str);
        let is_expected = state.is_some_and(|state| expected.contains(&state));
        *lock(&last) = status;
        Ok(is_expected.then_some(()))
    })
    .await
    .with_context(|| format!("last state: {last:?}"))
}

/// Waits until every region reaches every other one.
pub async fn wait_until_connected(regions: &Regions) -> anyhow::Result<()> {
    for region in regions.names() {
        for peer in regions.names().filter(|peer| *peer != region) {
            wait_until_reachable(regions, region, peer).await?;
        }
    }
    Ok(())
}

/// Waits until `peer` is up and available for `region`, its gateway is healthy for `region`'s Envoy, and `region` has
/// leased none of its replicas.
pub async fn wait_until_reachable(
    regions: &Regions,
    region: &str,
    peer: &str,
) -> anyhow::Result<()> {
    wait_for_peer_state(regions, region, peer, &["up"]).await?;
    wait_until_available(regions, region, peer).await?;
    let envoy = regions.region(region)?.envoy();
    let stat = format!("cluster.region-{peer}-gateways.membership_healthy");
    wait_for(WAIT_MAX, &format!("{region} to reach {peer}"), || async {
        let is_healthy = envoy.stat(&stat).await? == 1;
        let status = peer_status(regions, region, peer).await?;
        let leased = status.get("leased").and_then(Value::as_u64);
        Ok((is_healthy && leased == Some(0)).then_some(()))
    })
    .await
}

/// Waits until `region` would forward to `peer`.
pub async fn wait_until_available(
    regions: &Regions,
    region: &str,
    peer: &str,
) -> anyhow::Result<()> {
    wait_for_availability(regions, region, peer, true).await
}

/// Waits until `region` would not forward to `peer`. The peer may still be up, by the pings that it sends.
pub async fn wait_until_unavailable(
    regions: &Regions,
    region: &str,
    peer: &str,
) -> anyhow::Result<()> {
    wait_for_availability(regions, region, peer, false).await
}

async fn wait_for_availability(
    regions: &Regions,
    region: &str,
    peer: &str,
    is_available: bool,
) -> anyhow::Result<()> {
    let service = regions.region(region)?.service();
    let is_expected = |value: f64| (value > 0.5) == is_available;
    let labels = [("region", peer)];
    admin::wait_for_metric(service, "isotherm_peer_available", &labels, is_expected).await
}

/// The replicas that a region manages, leased ones included: the addresses in `GET /api/replicas`.
pub async fn managed_replicas(stack: &Stack) -> anyhow::Result<BTreeSet<SocketAddr>> {
    let mut all = BTreeSet::new();
    for service in stack.services().filter(|service| service.process().is_ok()) {
        let replicas = service.get("/api/replicas").await?;
        let addresses = replicas.as_array().into_iter().flatten();
        all.extend(
            addresses
                .filter_map(|replica| replica.get("address")?.as_str()?.parse::<SocketAddr>().ok()),
        );
    }
    Ok(all)
}

/// Checks that each region manages exactly its own replica, whose name is the region's.
pub async fn check_own_replicas(
    regions: &Regions,
    replicas: &[&ScriptedReplica],
) -> anyhow::Result<()> {
    for replica in replicas {
        let managed = managed_replicas(regions.region(replica.name())?).await?;
        anyhow::ensure!(
            managed == BTreeSet::from([replica.address()]),
            "{} manages {managed:?}",
            replica.name()
        );
    }
    Ok(())
}

/// Waits until a region manages exactly these replicas.
pub async fn wait_until_managing(
    regions: &Regions,
    region: &str,
    expected: &[&ScriptedReplica],
) -> anyhow::Result<()> {
    let expected: BTreeSet<_> = expected.iter().map(|replica| replica.address()).collect();
    let condition = format!("{region} to manage {expected:?}");
    let waited = wait_for(WAIT_MAX, &condition, || async {
        let managed = managed_replicas(regions.region(region)?).await?;
        Ok((managed == expected).then_some(()))
    })
    .await;
    if waited.is_err() {
        print_statuses(regions).await;
    }
    waited
}

/// Prints what the service of each region says about regions and leases, for a test that fails.
pub async fn print_statuses(regions: &Regions) {
    for region in regions.names() {
        println!("{region}: {:?}", regions.status(region).await);
    }
}

/// Waits until each region holds the lease of its own replicas, by etcd; returns `false` where etcd is not installed.
pub async fn wait_for_own_leases(regions: &mut Regions) -> anyhow::Result<bool> {
    if regions.etcd().is_none() {
        return Ok(false);
    }
    for region in regions.names() {
        wait_for_own_lease(regions, region).await?;
    }
    // Every record names the other regions in order of their distance with the next renewal.
    tokio::time::sleep(RENEWAL_TIME).await;
    Ok(true)
}

/// Waits until a region holds the lease of its own replicas.
pub async fn wait_for_own_lease(regions: &Regions, region: &str) -> anyhow::Result<()> {
    wait_for(WAIT_MAX, &format!("{region} to hold its lease"), || async {
        let status = regions.status(region).await?;
        let holder = status.pointer("/lease/holder").and_then(Value::as_str);
        Ok((holder == Some(region)).then_some(()))
    })
    .await
}

/// Checks that every request succeeded, but for requests whose response had started when the network broke: as many as
/// the Envoys' access logs have.
pub fn check_succeeded_or_started(
    regions: &Regions,
    records: &[RequestRecord],
) -> anyhow::Result<()> {
    let mut started = 0;
    for name in regions.names() {
        let log = regions.region(name)?.envoy().process().log();
        started += log.matches("upstream_reset_after_response_started").count();
    }
    let failed = records.iter().filter(|record| !record.is_success());
    if failed.count() <= started {
        return Ok(());
    }
    check_all_succeeded(records).with_context(|| format!("{started} responses had started"))
}
