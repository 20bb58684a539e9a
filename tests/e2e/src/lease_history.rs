//! Watches the records of leases in etcd, and finds a lease that was taken while it was alive.
//!
//! Each response proves when a record was written: after the query before it. A lease that changes from one region to a
//! third one within the time in which its holder may use it, at the latest, was alive.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use isotherm_harness::LEASE_MS;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::lock;

const PAUSE: Duration = Duration::from_millis(30);
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Prefix of the keys of the records.
const PREFIX: &str = "/isotherm/regions/";
const PREFIX_END: &str = "/isotherm/regions0";
/// Time after a renewal in which its holder uses the lease: the lease less its margin.
const USABLE: Duration = Duration::from_millis(LEASE_MS - LEASE_MS / 5);

/// Queries etcd until it is dropped.
#[derive(Debug)]
pub struct LeaseHistory {
    history: Arc<Mutex<History>>,
    _queries: JoinSet<()>,
}

#[derive(Debug, Default)]
struct History {
    leases: BTreeMap<String, Lease>,
    /// Time before the last query that was answered.
    queried: Option<Instant>,
    taken: u64,
    violations: Vec<String>,
}

#[derive(Debug)]
struct Lease {
    holder: Option<String>,
    renewals: u64,
    /// Earliest time at which the record can have been written.
    written: Instant,
}

impl LeaseHistory {
    /// Starts to query the etcd at `address`.
    pub fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(RESPONSE_TIME_MAX)
            .no_proxy();
        let client = client.build()?;
        let history = Arc::<Mutex<History>>::default();
        let mut queries = JoinSet::new();
        let noted = Arc::clone(&history);
        queries.spawn(async move {
            loop {
                let sent = Instant::now();
                if let Ok(records) = records(&client, address).await {
                    lock(&noted).note(sent, &records, Instant::now());
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Ok(Self {
            history,
            _queries: queries,
        })
    }

    /// Number of leases that another region than the owner took.
    pub fn taken(&self) -> u64 {
        lock(&self.history).taken
    }

    /// Fails when a lease was taken while it was alive.
    pub fn check(&self) -> anyhow::Result<()> {
        let history = lock(&self.history);
        ensure!(history.queried.is_some(), "etcd was not queried");
        ensure!(history.violations.is_empty(), "{:#?}", history.violations);
        Ok(())
    }
}

async fn records(client: &reqwest::Client, etcd: SocketAddr) -> anyhow::Result<Vec<Value>> {
    let range = json!({ "key": BASE64_STANDARD.encode(PREFIX), "range_end": BASE64_STANDARD.encode(PREFIX_END) });
    let request = client
        .post(format!("http://{etcd}/v3/kv/range"))
        .json(&range);
    let found: Value = request.send().await?.error_for_status()?.json().await?;
    let found = found.get("kvs").and_then(Value::as_array).cloned();
    let records = found.unwrap_or_default().into_iter().map(|found| {
        let value = found
            .get("value")
            .and_then(Value::as_str)
            .context("no value")?;
        Ok(serde_json::from_slice(&BASE64_STANDARD.decode(value)?)?)
    });
    records.collect()
}

impl History {
    /// Notes a response to a query that was sent at `sent`.
    fn note(&mut self, sent: Instant, records: &[Value], now: Instant) {
        // What this response shows first was written after the query before it was sent.
        let written = self.queried.unwrap_or(sent);
        self.queried = Some(sent);
        for record in records {
            let text = |member: &str| {
                record
                    .get(member)
                    .and_then(Value::as_str)
                    .map(str::to_owned)
            };
            let (Some(region), holder) = (text("region"), text("holder")) else {
                continue;
            };
            let renewals = record
                .get("renewals")
                .and_then(Value::as_u64)
                .unwrap_or_default();
            let lease = Lease {
                holder,
                renewals,
                written,
            };
            let Some(before) = self.leases.get(&region) else {
                self.leases.insert(region, lease);
                continue;
            };
            if before.renewals == renewals {
                continue;
            }
            let is_taken = lease.holder != before.holder
                && lease
                    .holder
                    .as_ref()
                    .is_some_and(|holder| *holder != region);
            self.taken += u64::from(is_taken);
            let age = now - before.written;
            if is_taken && before.holder.is_some() && age < USABLE {
                let (from, to) = (&before.holder, &lease.holder);
                let text = format!("{region}: from {from:?} to {to:?} {age:?} after a renewal");
                self.violations.push(text);
            }
            self.leases.insert(region, lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str, renewals: u64) -> Vec<Value> {
        vec![json!({ "region": "eu", "holder": holder, "renewals": renewals })]
    }

    /// Whether a lease that another region takes so long after a renewal counts as taken while it was alive.
    fn is_violation(taken_after: Duration) -> bool {
        let mut history = History::default();
        let now = Instant::now();
        let ago = |time: Duration| now.checked_sub(time).expect("the machine runs longer");
        history.note(ago(taken_after * 2), &record("eu", 1), ago(taken_after * 2));
        history.note(ago(taken_after), &record("eu", 2), ago(taken_after));
        history.note(now, &record("us", 3), now);
        assert_eq!(history.taken, 1);
        !history.violations.is_empty()
    }

    #[test]
    fn a_lease_that_was_alive_when_it_was_taken_is_found() {
        assert!(is_violation(USABLE / 4));
        assert!(!is_violation(USABLE * 2));
    }

    #[test]
    fn an_owner_may_take_its_lease_back_at_any_time() {
        let mut history = History::default();
        let now = Instant::now();
        history.note(now, &record("us", 1), now);
        history.note(now, &record("eu", 2), now);
        assert!(history.violations.is_empty() && history.taken == 0);
    }
}
