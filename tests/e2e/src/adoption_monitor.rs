//! Watches which region has adopted which replica, and finds replicas that two regions have adopted.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use isotherm_harness::{Regions, wait_until};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::WAIT_MAX;

/// Pause between two sweeps over all services.
const SWEEP_INTERVAL: Duration = Duration::from_millis(50);
/// Bound on one response. A service that was killed refuses the connection at once.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);

/// Queries every service until it is dropped or finished.
#[derive(Debug)]
pub struct AdoptionMonitor {
    observed: watch::Receiver<Observations>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Observations {
    sweeps: u64,
    /// Most replicas that were adopted at the same time.
    adoptions_max: usize,
    /// Replicas that two regions had adopted at the same time.
    conflicts: Vec<String>,
}

/// The admin API of one service.
#[derive(Clone, Debug)]
struct AdminApi {
    region: String,
    url: String,
    token: String,
}

impl AdoptionMonitor {
    /// Starts to query every service of every region.
    ///
    /// # Errors
    /// When the system has no resources for a client.
    pub fn start(regions: &Regions) -> anyhow::Result<Self> {
        let mut apis = Vec::new();
        for region in regions.names() {
            for service in regions.region(region)?.services() {
                apis.push(AdminApi {
                    region: region.to_owned(),
                    url: service.admin_url("/api/replicas"),
                    token: service.token().to_owned(),
                });
            }
        }
        let client = reqwest::Client::builder()
            .timeout(RESPONSE_TIME_MAX)
            .build()?;
        let (sender, observed) = watch::channel(Observations::default());
        let task = tokio::spawn(sweep(client, apis, sender));
        Ok(Self { observed, task })
    }

    /// Waits until `count` replicas were seen adopted at the same time.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn wait_for_adoptions(&self, count: usize) -> anyhow::Result<()> {
        wait_until(WAIT_MAX, &format!("{count} adoptions"), || {
            std::future::ready(self.observed.borrow().adoptions_max >= count)
        })
        .await
    }

    /// Ends the monitor; returns the most replicas that were adopted at the same time.
    ///
    /// # Errors
    /// When two regions had adopted the same replica at the same time.
    pub fn finish(self) -> anyhow::Result<usize> {
        let observed = self.observed.borrow();
        ensure!(observed.sweeps > 0, "no service was queried");
        let conflicts = &observed.conflicts;
        ensure!(
            conflicts.is_empty(),
            "adopted by two regions: {conflicts:#?}"
        );
        Ok(observed.adoptions_max)
    }
}

impl Drop for AdoptionMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl AdminApi {
    /// The replicas that the service has adopted; none when it does not answer.
    async fn adopted(&self, client: &reqwest::Client) -> Vec<String> {
        let request = client.get(&self.url).bearer_auth(&self.token);
        let Ok(response) = request.send().await else {
            return Vec::new();
        };
        let replicas: Value = response.json().await.unwrap_or_default();
        let adopted = replicas.as_array().into_iter().flatten().filter(|replica| {
            let from = replica.get("adopted_from");
            from.is_some_and(|region| !region.is_null())
        });
        adopted
            .filter_map(|replica| replica.get("address")?.as_str().map(str::to_owned))
            .collect()
    }
}

async fn sweep(
    client: reqwest::Client,
    apis: Vec<AdminApi>,
    observed: watch::Sender<Observations>,
) {
    loop {
        let mut holders: BTreeMap<String, AdminApi> = BTreeMap::new();
        let mut conflicts = Vec::new();
        for api in &apis {
            for replica in api.adopted(&client).await {
                let other = holders.insert(replica.clone(), api.clone());
                let Some(other) = other.filter(|other| other.region != api.region) else {
                    continue;
                };
                // The other region may have handed the replica over since its response: query it again.
                if other.adopted(&client).await.contains(&replica) {
                    conflicts.push(format!("{replica} by {} and {}", other.region, api.region));
                }
            }
        }
        observed.send_modify(|observed| {
            observed.sweeps += 1;
            observed.adoptions_max = observed.adoptions_max.max(holders.len());
            observed.conflicts.append(&mut conflicts);
        });
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}
