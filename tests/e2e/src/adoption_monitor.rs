//! Watches who looks after which replica, all the time, and finds two regions that have adopted the same one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use isotherm_harness::{Regions, Service};
use reqwest::Method;
use serde_json::Value;
use tokio::task::JoinHandle;

/// How often everyone is asked.
const INTERVAL: Duration = Duration::from_millis(50);
/// A service that is frozen does not answer; it is passed over.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// Asks until it is dropped or ended.
#[derive(Debug)]
pub struct AdoptionMonitor {
    found: Arc<Mutex<Found>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Found {
    sweeps: u64,
    adoptions: u64,
    twice: Vec<String>,
}

/// Where to ask: one service.
#[derive(Clone, Debug)]
struct Desk {
    region: String,
    url: String,
    token: String,
}

impl AdoptionMonitor {
    /// Starts to ask every service of every region.
    ///
    /// # Errors
    /// When there is a region without a name, which cannot be.
    pub fn start(regions: &Regions) -> anyhow::Result<Self> {
        let mut desks = Vec::new();
        for region in regions.names() {
            for service in regions.region(region)?.services() {
                desks.push(Desk::of(region, service));
            }
        }
        let found = Arc::new(Mutex::new(Found::default()));
        let client = reqwest::Client::builder().timeout(ANSWER_MAX).build()?;
        let task = tokio::spawn(sweep(client, desks, Arc::clone(&found)));
        Ok(Self { found, task })
    }

    /// Ends it.
    ///
    /// # Errors
    /// When a replica was seen adopted by two regions at the same time.
    pub fn finish(self) -> anyhow::Result<u64> {
        self.task.abort();
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(found.sweeps > 0, "nobody was ever asked");
        ensure!(found.twice.is_empty(), "adopted by two: {:#?}", found.twice);
        Ok(found.adoptions)
    }
}

impl Drop for AdoptionMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Desk {
    fn of(region: &str, service: &Service) -> Self {
        Self {
            region: region.to_owned(),
            url: service.admin_url("/api/replicas"),
            token: service.token().to_owned(),
        }
    }

    /// The replicas that it has adopted; nothing when it does not answer.
    async fn adopted(&self, client: &reqwest::Client) -> Vec<String> {
        let request = client
            .request(Method::GET, &self.url)
            .bearer_auth(&self.token);
        let Ok(answer) = request.send().await else {
            return Vec::new();
        };
        let replicas: Value = answer.json().await.unwrap_or_default();
        let replicas = replicas.as_array().cloned().unwrap_or_default();
        let adopted = replicas.iter().filter(|replica| {
            replica
                .get("adopted_from")
                .is_some_and(|region| !region.is_null())
        });
        adopted
            .filter_map(|replica| replica.get("address")?.as_str().map(str::to_owned))
            .collect()
    }
}

async fn sweep(client: reqwest::Client, desks: Vec<Desk>, found: Arc<Mutex<Found>>) {
    // Who had adopted what when asked last. An answer is some time ago when the next desk is asked: a replica that is
    // handed from one to the other would seem to be with both. So whoever seems to be the first of two is asked again.
    loop {
        let mut holders: BTreeMap<String, Desk> = BTreeMap::new();
        for desk in &desks {
            for replica in desk.adopted(&client).await {
                let other = holders.insert(replica.clone(), desk.clone());
                let Some(other) = other.filter(|other| other.region != desk.region) else {
                    continue;
                };
                if other.adopted(&client).await.contains(&replica) {
                    let twice = format!("{replica} by {} and {}", other.region, desk.region);
                    found
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .twice
                        .push(twice);
                }
            }
        }
        {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.sweeps += 1;
            found.adoptions = found
                .adoptions
                .max(u64::try_from(holders.len()).unwrap_or(u64::MAX));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
