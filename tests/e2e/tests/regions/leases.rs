//! A region dies in part or in whole, and another region holds the lease of its replicas until it is back, also when the store
//! fails meanwhile. Without etcd these tests are left out, and say so.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use isotherm_e2e::load::check_all_succeeded;
use isotherm_e2e::regions::{
    client, print_statuses, scripted_regions_of, wait_for_own_leases, wait_for_peer_state,
    wait_until_connected, wait_until_managing,
};
use isotherm_e2e::{LeaseMonitor, Load, ScriptedReplica, WAIT_MAX, chat, permit};
use isotherm_harness::{Etcd, Regions, RegionsBuilder, wait_for};
use serde_json::Value;

const CLIENTS: usize = 4;
/// A region counts as lost long before its lease ends, so that the nearest region is the first to take the lease.
const HEARTBEAT_MS: u64 = 400;
/// A lease so long that the next region waits clearly longer than the nearest one, on a busy machine too.
const LEASE_MS: u64 = 8_000;

/// The replicas of three regions.
struct Replicas {
    us: [ScriptedReplica; 2],
    eu: [ScriptedReplica; 2],
    asia: [ScriptedReplica; 2],
}

impl Replicas {
    async fn start() -> anyhow::Result<Self> {
        Ok(Self {
            us: ScriptedReplica::start_all(["us-0", "us-1"]).await?,
            eu: ScriptedReplica::start_all(["eu-0", "eu-1"]).await?,
            asia: ScriptedReplica::start_all(["asia-0", "asia-1"]).await?,
        })
    }

    fn regions(&self, name: &str) -> RegionsBuilder {
        let [us, eu, asia] = [&self.us, &self.eu, &self.asia].map(|pair| pair.each_ref());
        scripted_regions_of(name, &[("us", &us), ("eu", &eu), ("asia", &asia)], 8)
            .service(|_, config| config.set("region/heartbeat_ms", HEARTBEAT_MS))
    }

    /// Regions of which `us` is the nearest to `eu`.
    fn us_near_eu(&self, name: &str) -> RegionsBuilder {
        self.regions(name)
            .distance("us", "eu", Duration::from_millis(10))
            .distance("eu", "asia", Duration::from_millis(200))
            .distance("asia", "us", Duration::from_millis(200))
            .service(|_, config| match config.get("region/store") {
                Ok(_) => config.set("region/store/lease_ms", LEASE_MS),
                // Without etcd there is no store.
                Err(_) => Ok(()),
            })
    }

    /// The replicas that `us` manages while it holds the lease of `eu`.
    fn of_us_and_eu(&self) -> Vec<&ScriptedReplica> {
        self.us.iter().chain(&self.eu).collect()
    }

    /// Waits until each region manages its own replicas.
    async fn wait_until_returned(&self, regions: &Regions) -> anyhow::Result<()> {
        for (region, own) in [("us", &self.us), ("eu", &self.eu), ("asia", &self.asia)] {
            wait_until_managing(regions, region, &own.each_ref()).await?;
        }
        Ok(())
    }
}

fn prompt(client: usize, turn: usize) -> Value {
    chat(&format!("Request {turn} of client {client}. ").repeat(20))
}

/// The part of a region that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Service,
    Envoy,
    Both,
}

fn kill(regions: &mut Regions, region: &str, part: Part) -> anyhow::Result<()> {
    let stack = regions.region_mut(region)?;
    if part != Part::Service {
        stack.envoy_mut().kill()?;
    }
    if part != Part::Envoy {
        stack.service_mut().kill()?;
    }
    Ok(())
}

async fn restart(regions: &mut Regions, region: &str, part: Part) -> anyhow::Result<()> {
    let stack = regions.region_mut(region)?;
    if part != Part::Envoy {
        stack.service_mut().start().await?;
    }
    if part != Part::Service {
        stack.envoy_mut().restart().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_nearest_region_leases_the_replicas_of_a_dead_region_and_returns_them()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = Replicas::start().await?;
    let mut regions = replicas.us_near_eu("leases").start().await?;
    wait_until_connected(&regions).await?;
    if !wait_for_own_leases(&mut regions).await? {
        return Ok(());
    }
    let monitor = LeaseMonitor::start(&regions)?;
    let loads = [
        Load::start(&regions.region("us")?.url(""), CLIENTS, prompt)?,
        Load::start(&regions.region("asia")?.url(""), CLIENTS, prompt)?,
    ];

    for part in [Part::Service, Part::Envoy, Part::Both] {
        kill(&mut regions, "eu", part)?;

        let waited = wait_until_serving(&regions, "us", "eu").await?;
        println!(
            "{part:?} killed: served again after {} ms",
            waited.as_millis()
        );
        wait_until_managing(&regions, "us", &replicas.of_us_and_eu()).await?;
        monitor.wait_for_leased(2).await?;
        if part == Part::Service {
            // The region's Envoy continues without the service.
            let client = client(&regions, "eu")?;
            assert_eq!(client.chat("s", &chat("alone")).await?.status, 200);
        }
        for load in &loads {
            load.wait_for_requests(20).await?;
        }

        restart(&mut regions, "eu", part).await?;

        wait_for_peer_state(&regions, "us", "eu", &["up"]).await?;
        replicas.wait_until_returned(&regions).await?;
        for load in &loads {
            load.wait_for_requests(20).await?;
        }
        wait_until_connected(&regions).await?;
        wait_for_own_leases(&mut regions).await?;
    }

    for load in loads {
        check_all_succeeded(&load.stop().await?)?;
    }
    assert_eq!(monitor.finish()?, 2, "replicas leased at the same time");
    Ok(())
}

/// Sends new conversations to a region until a replica of another one answers, and returns the time that took.
async fn wait_until_serving(
    regions: &Regions,
    taker: &str,
    owner: &str,
) -> anyhow::Result<Duration> {
    let start = Instant::now();
    let client = client(regions, taker)?;
    let number = AtomicUsize::new(0);
    let waited = wait_for(
        WAIT_MAX,
        &format!("{taker} to use a replica of {owner}"),
        || async {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let session = format!("{owner}-{number}");
            let response = client.chat(&session, &chat(&session.repeat(200))).await?;
            let is_there = response
                .served_by()
                .is_some_and(|name| name.starts_with(owner));
            Ok(is_there.then(|| start.elapsed()))
        },
    )
    .await;
    if waited.is_err() {
        print_statuses(regions).await;
    }
    waited
}

#[tokio::test]
async fn leases_on_other_regions_end_without_the_store_and_are_taken_again_with_it()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = Replicas::start().await?;
    let mut regions = replicas.us_near_eu("leases-store").start().await?;
    wait_until_connected(&regions).await?;
    if !wait_for_own_leases(&mut regions).await? {
        return Ok(());
    }
    let monitor = LeaseMonitor::start(&regions)?;
    let loads = [
        Load::start(&regions.region("us")?.url(""), CLIENTS, prompt)?,
        Load::start(&regions.region("asia")?.url(""), CLIENTS, prompt)?,
    ];
    kill(&mut regions, "eu", Part::Service)?;
    wait_until_managing(&regions, "us", &replicas.of_us_and_eu()).await?;

    etcd(&mut regions)?.kill();
    wait_until_managing(&regions, "us", &replicas.us.each_ref()).await?;
    for load in &loads {
        load.wait_for_requests(20).await?;
    }
    etcd(&mut regions)?.restart()?;
    wait_until_managing(&regions, "us", &replicas.of_us_and_eu()).await?;

    // Only us loses the store: the next region takes the lease.
    let link = regions.store_link("us").context("no store")?.clone();
    link.blackhole();
    wait_until_managing(&regions, "us", &replicas.us.each_ref()).await?;
    let leased: Vec<&ScriptedReplica> = replicas.asia.iter().chain(&replicas.eu).collect();
    wait_until_managing(&regions, "asia", &leased).await?;
    link.restore();

    restart(&mut regions, "eu", Part::Service).await?;
    replicas.wait_until_returned(&regions).await?;
    for load in loads {
        load.wait_for_requests(20).await?;
        check_all_succeeded(&load.stop().await?)?;
    }
    assert_eq!(monitor.finish()?, 2, "replicas leased at the same time");
    Ok(())
}

fn etcd(regions: &mut Regions) -> anyhow::Result<&mut Etcd> {
    regions.etcd().context("no store")
}

#[tokio::test]
async fn one_region_leases_the_replicas_of_two_regions_that_die_at_once() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = Replicas::start().await?;
    // us is the nearest to both.
    let mut regions = replicas
        .regions("two-die")
        .distance("eu", "asia", Duration::from_millis(200))
        .start()
        .await?;
    wait_until_connected(&regions).await?;
    if !wait_for_own_leases(&mut regions).await? {
        return Ok(());
    }
    let monitor = LeaseMonitor::start(&regions)?;
    let load = Load::start(&regions.region("us")?.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(10).await?;

    kill(&mut regions, "eu", Part::Both)?;
    kill(&mut regions, "asia", Part::Both)?;

    let all = [&replicas.us, &replicas.eu, &replicas.asia];
    let all: Vec<&ScriptedReplica> = all.into_iter().flatten().collect();
    wait_until_managing(&regions, "us", &all).await?;
    monitor.wait_for_leased(4).await?;
    load.wait_for_requests(20).await?;

    restart(&mut regions, "eu", Part::Both).await?;
    restart(&mut regions, "asia", Part::Both).await?;

    replicas.wait_until_returned(&regions).await?;
    load.wait_for_requests(10).await?;
    check_all_succeeded(&load.stop().await?)?;
    assert_eq!(monitor.finish()?, 4, "replicas leased at the same time");
    Ok(())
}
