//! Watches which region has leased which replica, and finds replicas that two regions have leased.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::ensure;
use isotherm_harness::{Regions, wait_until};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{WAIT_MAX, lock};

/// Pause between two sweeps over all services.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// Bound on one response. A service that was killed refuses the connection at once.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);

/// Queries every service until it is dropped or finished.
#[derive(Debug)]
pub struct LeaseMonitor {
    observations: Arc<Mutex<Observations>>,
    _sweeps: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Observations {
    sweeps: u64,
    /// Most replicas that were leased at the same time.
    leased_max: usize,
    /// Replicas that two regions had leased at the same time.
    conflicts: Vec<String>,
}

/// The admin API of one service.
#[derive(Clone, Debug)]
struct AdminApi {
    region: String,
    url: String,
    token: String,
}

impl LeaseMonitor {
    /// Starts to query every service of every region.
    pub fn start(regions: &Regions) -> anyhow::Result<Self> {
        let mut apis = Vec::new();
        for region in regions.names() {
            apis.extend(regions.region(region)?.services().map(|service| AdminApi {
                region: region.to_owned(),
                url: service.admin_url("/api/replicas"),
                token: service.token().to_owned(),
            }));
        }
        let client = reqwest::Client::builder()
            .timeout(RESPONSE_TIME_MAX)
            .pool_max_idle_per_host(0)
            .build()?;
        let observations = Arc::default();
        let mut sweeps = JoinSet::new();
        sweeps.spawn(sweep(client, apis, Arc::clone(&observations)));
        Ok(Self {
            observations,
            _sweeps: sweeps,
        })
    }

    /// Waits until `count` replicas were leased at the same time.
    pub async fn wait_for_leased(&self, count: usize) -> anyhow::Result<()> {
        wait_until(WAIT_MAX, &format!("{count} leased replicas"), || {
            std::future::ready(lock(&self.observations).leased_max >= count)
        })
        .await
    }

    /// Ends the monitor; returns the most replicas that were leased at the same time. A replica that two regions had
    /// leased at the same time is an error.
    pub fn finish(self) -> anyhow::Result<usize> {
        let observations = lock(&self.observations);
        ensure!(observations.sweeps > 0, "no service was queried");
        let conflicts = &observations.conflicts;
        ensure!(
            conflicts.is_empty(),
            "leased by two regions: {conflicts:#?}"
        );
        Ok(observations.leased_max)
    }
}

impl AdminApi {
    /// The replicas that the service has leased; none when it does not respond.
    async fn leased(&self, client: &reqwest::Client) -> Vec<String> {
        let request = client.get(&self.url).bearer_auth(&self.token);
        let Ok(response) = request.send().await else {
            return Vec::new();
        };
        let replicas: Vec<Value> = response.json().await.unwrap_or_default();
        let is_leased = |replica: &&Value| !replica.get("owner").is_none_or(Value::is_null);
        let leased = replicas.iter().filter(is_leased);
        leased
            .filter_map(|replica| replica.get("address")?.as_str().map(str::to_owned))
            .collect()
    }
}

async fn sweep(
    client: reqwest::Client,
    apis: Vec<AdminApi>,
    observations: Arc<Mutex<Observations>>,
) {
    loop {
        let mut holders: BTreeMap<String, AdminApi> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for api in &apis {
            for replica in api.leased(&client).await {
                let other = holders.insert(replica.clone(), api.clone());
                let Some(other) = other.filter(|other| other.region != api.region) else {
                    continue;
                };
                // The other region may have handed the replica over since its response: query it again.
                if other.leased(&client).await.contains(&replica) {
                    conflicts.push(format!("{replica} by {} and {}", other.region, api.region));
                }
            }
        }
        {
            let mut observations = lock(&observations);
            observations.sweeps += 1;
            observations.leased_max = observations.leased_max.max(holders.len());
            observations.conflicts.append(&mut conflicts);
        }
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}
