//! Watches which regions decide about which replica, and finds replicas about which two regions decide.
//!
//! A service decides about its own replicas, unless it left them to another region, and about leased ones. Two services never respond
//! at the same moment, so the monitor counts the time between two responses of each that say so: what it reports has happened.
//! An owner without the store keeps its replicas and is not counted (`docs/design/recovery.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::ensure;
use isotherm_harness::{Regions, wait_until};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{WAIT_MAX, lock};

/// Pause between two queries of a service.
const PAUSE: Duration = Duration::from_millis(50);
/// Bound on one response. A service that was killed refuses the connection at once.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);
/// A service that takes longer may have been suspended meanwhile, when it decided nothing.
const SLOW_RESPONSE: Duration = Duration::from_millis(300);
/// Two lists of the store, which are the margin of a lease: an owner with an older list is without the store.
const MARGIN: Duration = Duration::from_millis(isotherm_harness::LEASE_MS / 5);

/// Queries every service until it is dropped or finished.
#[derive(Debug)]
pub struct LeaseMonitor {
    observations: Arc<Mutex<Observations>>,
    _queries: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Observations {
    /// The last response of each service, by its address.
    services: BTreeMap<String, Service>,
    responses: u64,
    /// Most replicas that were leased at the same time.
    leased_max: usize,
    /// Replicas about which two regions decided.
    conflicts: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Service {
    region: String,
    replicas: BTreeMap<String, Decider>,
}

/// A service that decides about a replica, as its responses prove.
#[derive(Clone, Copy, Debug)]
struct Decider {
    is_leased: bool,
    /// Time after the first response.
    first: Instant,
    /// Time before the last query.
    last: Instant,
}

/// The admin API of one service.
#[derive(Debug)]
struct AdminApi {
    region: String,
    url: String,
    token: String,
    client: reqwest::Client,
}

impl LeaseMonitor {
    /// Starts to query every service of every region.
    pub fn start(regions: &Regions) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(RESPONSE_TIME_MAX)
            .pool_max_idle_per_host(0)
            .build()?;
        let observations = Arc::default();
        let mut queries = JoinSet::new();
        for region in regions.names() {
            for service in regions.region(region)?.services() {
                let api = AdminApi {
                    region: region.to_owned(),
                    url: service.admin_url("/"),
                    token: service.token().to_owned(),
                    client: client.clone(),
                };
                queries.spawn(query(api, Arc::clone(&observations)));
            }
        }
        Ok(Self {
            observations,
            _queries: queries,
        })
    }

    /// Waits until `count` replicas were leased at the same time.
    pub async fn wait_for_leased(&self, count: usize) -> anyhow::Result<()> {
        wait_until(WAIT_MAX, &format!("{count} leased replicas"), || {
            std::future::ready(lock(&self.observations).leased_max >= count)
        })
        .await
    }

    /// Ends the monitor; returns the most replicas that were leased at the same time. A replica that two regions had leased, or about
    /// which its owner decided beside the holder for longer than the margin, is an error.
    pub fn finish(self) -> anyhow::Result<usize> {
        self.check()?;
        Ok(lock(&self.observations).leased_max)
    }

    /// Fails when two regions have decided about a replica.
    pub fn check(&self) -> anyhow::Result<()> {
        let observations = lock(&self.observations);
        ensure!(observations.responses > 0, "no service was queried");
        let conflicts = &observations.conflicts;
        ensure!(conflicts.is_empty(), "two deciders: {conflicts:#?}");
        Ok(())
    }
}

impl AdminApi {
    /// The replicas about which the service decides, and whether each is leased; none when it does not respond.
    async fn replicas(&self) -> Option<BTreeMap<String, bool>> {
        let regions = self.get("api/regions").await?;
        let store_age = regions
            .pointer("/lease/store_age_ms")
            .and_then(Value::as_u64);
        let is_within = |age| Duration::from_millis(age) <= MARGIN;
        let has_store = store_age.is_some_and(is_within);
        let replicas = self.get("api/replicas").await?;
        let active = replicas.as_array()?.iter();
        let active = active.filter(|replica| replica.get("draining") == Some(&Value::Bool(false)));
        let deciding = active.filter_map(|replica| {
            let is_leased = replica.get("owner").is_some_and(Value::is_string);
            let address = replica.get("address")?.as_str()?.to_owned();
            (is_leased || has_store).then_some((address, is_leased))
        });
        Some(deciding.collect())
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let request = self.client.get(format!("{}{path}", self.url));
        let response = request.bearer_auth(&self.token).send().await.ok()?;
        response.json().await.ok()
    }
}

async fn query(api: AdminApi, observations: Arc<Mutex<Observations>>) {
    loop {
        let sent = Instant::now();
        let replicas = api.replicas().await.unwrap_or_default();
        let times = [sent, Instant::now()];
        lock(&observations).note(&api.url, &api.region, replicas, times);
        tokio::time::sleep(PAUSE).await;
    }
}

impl Observations {
    /// Notes a response, with the times of its query and of its end.
    fn note(
        &mut self,
        url: &str,
        region: &str,
        replicas: BTreeMap<String, bool>,
        [sent, now]: [Instant; 2],
    ) {
        self.responses += 1;
        let known = self.services.entry(url.to_owned()).or_default();
        region.clone_into(&mut known.region);
        let before = std::mem::take(&mut known.replicas);
        let is_slow = now - sent > SLOW_RESPONSE;
        let deciders = replicas.into_iter().map(|(replica, is_leased)| {
            let same = before.get(&replica);
            let same = same.filter(|decider| decider.is_leased == is_leased && !is_slow);
            let decider = Decider {
                is_leased,
                first: same.map_or(now, |decider| decider.first),
                last: sent,
            };
            (replica, decider)
        });
        known.replicas = deciders.collect();
        self.find_conflicts(url);
        let leased = self.services.values().flat_map(|service| &service.replicas);
        let leased: BTreeSet<&String> = leased
            .filter(|(_, decider)| decider.is_leased)
            .map(|(replica, _)| replica)
            .collect();
        self.leased_max = self.leased_max.max(leased.len());
    }

    /// Compares one service with those of other regions.
    fn find_conflicts(&mut self, url: &str) {
        let Some(service) = self.services.get(url) else {
            return;
        };
        let others = self.services.values();
        for other in others.filter(|other| other.region != service.region) {
            for (replica, one) in &service.replicas {
                let Some(two) = other.replicas.get(replica) else {
                    continue;
                };
                let both = one.last.min(two.last);
                let both = both.saturating_duration_since(one.first.max(two.first));
                let limit = match one.is_leased && two.is_leased {
                    true => Duration::ZERO,
                    false => MARGIN,
                };
                if both > limit {
                    let (one, two) = (&service.region, &other.region);
                    let regions = [one.min(two), one.max(two)];
                    self.conflicts.insert(format!("{replica} by {regions:?}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observations(pause: Duration, is_leased: [bool; 2]) -> Observations {
        let mut observations = Observations::default();
        let mut now = Instant::now();
        let replicas = |is_leased| BTreeMap::from([("10.0.0.1:8000".to_owned(), is_leased)]);
        for _ in 0..3 {
            for (region, is_leased) in ["eu", "us"].into_iter().zip(is_leased) {
                observations.note(region, region, replicas(is_leased), [now, now]);
            }
            now += pause;
        }
        observations
    }

    #[test]
    fn an_owner_beside_the_holder_is_found_after_the_margin() {
        assert!(observations(MARGIN, [false, true]).conflicts.len() == 1);
        assert!(observations(MARGIN / 4, [false, true]).conflicts.is_empty());
    }

    #[test]
    fn two_regions_that_lease_one_replica_are_found_at_once() {
        assert!(observations(MARGIN / 4, [true, true]).conflicts.len() == 1);
    }

    #[test]
    fn a_slow_response_proves_nothing_about_the_time_before() {
        let mut observations = observations(MARGIN / 4, [false, true]);
        let start = Instant::now();
        let received = start + 2 * MARGIN;
        let replicas = BTreeMap::from([("10.0.0.1:8000".to_owned(), false)]);
        observations.note("eu", "eu", replicas, [start, received]);
        assert!(observations.conflicts.is_empty());
    }
}
