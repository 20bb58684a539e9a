//! Leases under schedules of faults, with real processes: services, Envoys and etcd are killed and suspended, and networks between
//! regions and to the store break. `ISOTHERM_SCHEDULES` sets the number of schedules, `ISOTHERM_SEED` the first seed. Without
//! etcd the test is left out.
#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "tests; a plan names regions and faults that there are"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use isotherm_e2e::lease_history::LeaseHistory;
use isotherm_e2e::load::RequestRecord;
use isotherm_e2e::regions::{scripted_regions, wait_for_own_leases, wait_until_connected};
use isotherm_e2e::{LeaseMonitor, Load, ScriptedReplica, chat, permit};
use isotherm_harness::{NetworkConditions, Regions};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::sleep;

const REGIONS: [&str; 3] = ["us", "eu", "asia"];
const CLIENTS: usize = 2;
const SCHEDULES: u64 = 2;
/// Latest begin of a fault, and the lengths of faults, in milliseconds: shorter and longer than a lease, which is 3 s.
const BEGIN_MS_MAX: u64 = 3_000;
const LENGTH_MS: std::ops::RangeInclusive<u64> = 300..=7_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    ServiceKilled,
    ServiceSuspended,
    EnvoyKilled,
    EnvoySuspended,
    StoreKilled,
    StoreSuspended,
    /// The region does not reach the store: connections are reset, or nothing passes.
    StoreCut,
    StoreSilent,
    /// The region and the next one do not reach each other.
    NetworkCut,
    NetworkSilent,
}

const FAULTS: [Fault; 10] = [
    Fault::ServiceKilled,
    Fault::ServiceSuspended,
    Fault::EnvoyKilled,
    Fault::EnvoySuspended,
    Fault::StoreKilled,
    Fault::StoreSuspended,
    Fault::StoreCut,
    Fault::StoreSilent,
    Fault::NetworkCut,
    Fault::NetworkSilent,
];

/// A fault of a region, with times since the begin of the schedule.
#[derive(Clone, Copy, Debug)]
struct PlannedFault {
    fault: Fault,
    region: usize,
    begin: Duration,
    end: Duration,
}

impl PlannedFault {
    /// Whether both faults concern the same process or network.
    fn collides(&self, other: &Self) -> bool {
        let part = |fault| match fault {
            Fault::ServiceKilled | Fault::ServiceSuspended => 0,
            Fault::EnvoyKilled | Fault::EnvoySuspended => 1,
            Fault::StoreKilled | Fault::StoreSuspended => 2,
            Fault::StoreCut | Fault::StoreSilent => 3,
            Fault::NetworkCut | Fault::NetworkSilent => 4,
        };
        let is_same_place = self.region == other.region || part(self.fault) == 2;
        part(self.fault) == part(other.fault) && is_same_place
    }
}

fn plan(random: &mut SmallRng) -> Vec<PlannedFault> {
    let mut faults: Vec<PlannedFault> = Vec::new();
    for _ in 0..random.random_range(2..=4) {
        let begin = random.random_range(0..=BEGIN_MS_MAX);
        let planned = PlannedFault {
            fault: *FAULTS.choose(random).unwrap(),
            region: random.random_range(0..REGIONS.len()),
            begin: Duration::from_millis(begin),
            end: Duration::from_millis(begin + random.random_range(LENGTH_MS)),
        };
        if !faults.iter().any(|other| other.collides(&planned)) {
            faults.push(planned);
        }
    }
    faults
}

/// Begins a fault, or ends it.
async fn apply(
    regions: &mut Regions,
    planned: &PlannedFault,
    is_begin: bool,
) -> anyhow::Result<()> {
    let region = REGIONS[planned.region];
    let next = REGIONS[(planned.region + 1) % REGIONS.len()];
    match (planned.fault, is_begin) {
        (Fault::ServiceKilled, true) => regions.region_mut(region)?.service_mut().kill(),
        (Fault::ServiceKilled, false) => {
            regions
                .region_mut(region)?
                .service_mut()
                .start_unready()
                .await
        }
        (Fault::ServiceSuspended, true) => regions.region(region)?.service().process()?.suspend(),
        (Fault::ServiceSuspended, false) => regions.region(region)?.service().process()?.resume(),
        (Fault::EnvoyKilled, true) => regions.region_mut(region)?.envoy_mut().kill(),
        (Fault::EnvoyKilled, false) => regions.region_mut(region)?.envoy_mut().restart().await,
        (Fault::EnvoySuspended, true) => regions.region(region)?.envoy().process().suspend(),
        (Fault::EnvoySuspended, false) => regions.region(region)?.envoy().process().resume(),
        (Fault::StoreKilled | Fault::StoreSuspended, _) => {
            let etcd = regions.etcd().context("no store")?;
            match (planned.fault, is_begin) {
                (Fault::StoreKilled, true) => etcd.kill(),
                (Fault::StoreKilled, false) => etcd.restart()?,
                (_, true) => etcd.suspend()?,
                (_, false) => etcd.resume()?,
            }
            Ok(())
        }
        (Fault::StoreCut | Fault::StoreSilent, _) => {
            let link = regions.store_link(region).context("no store")?;
            break_network(link, planned.fault == Fault::StoreCut, is_begin);
            Ok(())
        }
        (Fault::NetworkCut | Fault::NetworkSilent, _) => {
            for link in regions.links_between(region, next)? {
                break_network(
                    &link.conditions,
                    planned.fault == Fault::NetworkCut,
                    is_begin,
                );
            }
            Ok(())
        }
    }
}

fn break_network(network: &NetworkConditions, is_cut: bool, is_begin: bool) {
    match (is_begin, is_cut) {
        (true, true) => network.cut(),
        (true, false) => network.blackhole(),
        (false, _) => network.restore(),
    }
}

/// Carries out one schedule, and returns the times in which each region's Envoy was killed or suspended.
async fn run(
    regions: &mut Regions,
    faults: &[PlannedFault],
    envoys: &mut Vec<(usize, Instant, Instant)>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    let mut moments: Vec<(Duration, &PlannedFault, bool)> = Vec::new();
    for fault in faults {
        moments.push((fault.begin, fault, true));
        moments.push((fault.end, fault, false));
    }
    moments.sort_by_key(|(time, ..)| *time);
    let mut begins = BTreeMap::new();
    for (time, planned, is_begin) in moments {
        sleep(time.saturating_sub(start.elapsed())).await;
        let before = Instant::now();
        apply(regions, planned, is_begin)
            .await
            .with_context(|| format!("{planned:?}"))?;
        if !matches!(planned.fault, Fault::EnvoyKilled | Fault::EnvoySuspended) {
            continue;
        }
        match is_begin {
            true => drop(begins.insert(planned.region, before)),
            false => {
                let begin = begins.remove(&planned.region).unwrap_or(start);
                envoys.push((planned.region, begin, Instant::now()));
            }
        }
    }
    Ok(())
}

/// Checks that every request got an answer or a reason: a status with a body, or the end of its own region's Envoy, or a break
/// after the first byte. Returns the number of answers by status, 0 for none.
fn check_requests(
    region: usize,
    records: &[RequestRecord],
    envoys: &[(usize, Instant, Instant)],
) -> anyhow::Result<BTreeMap<u16, usize>> {
    let mut ends = BTreeMap::new();
    for record in records {
        let own = envoys.iter().filter(|(of, ..)| *of == region);
        let mut own = own.filter(|(_, begin, end)| record.sent <= *end && record.ended >= *begin);
        let (status, has_reason) = match &record.response {
            Ok(response) => (response.status, !response.body.is_empty()),
            Err(_) => (0, record.response_started || own.next().is_some()),
        };
        ensure!(has_reason, "{} has no reason: {record:?}", REGIONS[region]);
        *ends.entry(status).or_default() += 1;
    }
    Ok(ends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_hold_under_schedules_of_faults() -> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let first = number("ISOTHERM_SEED").unwrap_or(1);
    let schedules = number("ISOTHERM_SCHEDULES").unwrap_or(SCHEDULES);
    let [us, eu, asia] = ScriptedReplica::start_all(REGIONS).await?;
    let mut regions = scripted_regions("schedules", &[&us, &eu, &asia], 8)
        .start()
        .await?;
    wait_until_connected(&regions).await?;
    if !wait_for_own_leases(&mut regions).await? {
        return Ok(());
    }
    let store = regions.etcd().context("no store")?.address();
    let history = LeaseHistory::start(store)?;
    let monitor = LeaseMonitor::start(&regions)?;
    let mut leased = 0;
    let mut ends: BTreeMap<u16, usize> = BTreeMap::new();
    for seed in first..first + schedules {
        let faults = plan(&mut SmallRng::seed_from_u64(seed));
        let mut loads = Vec::new();
        for region in REGIONS {
            let prompt = move |client: usize, turn: usize| {
                chat(&format!("Request {seed}-{turn} of {client}. "))
            };
            loads.push(Load::start(
                &regions.region(region)?.url(""),
                CLIENTS,
                prompt,
            )?);
        }
        let mut envoys = Vec::new();
        let schedule = async {
            run(&mut regions, &faults, &mut envoys).await?;
            let healed = Instant::now();
            wait_until_connected(&regions).await?;
            wait_for_own_leases(&mut regions).await?;
            for (region, load) in loads.into_iter().enumerate() {
                load.wait_for_each_client().await?;
                for (status, count) in check_requests(region, &load.stop().await?, &envoys)? {
                    *ends.entry(status).or_default() += count;
                }
            }
            monitor.check()?;
            history.check()?;
            anyhow::Ok(healed.elapsed())
        };
        let returned = schedule.await;
        let returned = returned.with_context(|| format!("ISOTHERM_SEED={seed}: {faults:#?}"))?;
        let names = faults
            .iter()
            .map(|planned| (planned.fault, REGIONS[planned.region]));
        let names: Vec<_> = names.collect();
        println!(
            "seed {seed}: {names:?}, back after {} ms",
            returned.as_millis()
        );
        leased = history.taken();
    }
    println!(
        "{schedules} schedules from {first}: {leased} leases taken, requests by status (0: the own Envoy was down) {ends:?}"
    );
    monitor.finish()?;
    Ok(())
}
