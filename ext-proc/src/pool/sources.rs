//! Keeps the replicas of a pool in step with the configuration: its fixed list, and the addresses of its DNS name.
//!
//! Only differences have an effect. A replica that an operator removes or drains stays that way until the file or the name
//! changes, and a replica that an operator adds is never removed. Name servers return some of many addresses in turn, so
//! a replica leaves only after its address was missing several times in a row. A name that cannot be resolved removes
//! no replica. This also holds at the start: until a pool has synced, Envoy keeps the endpoints that it has
//! ([`Pool::has_synced`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::Pool;
use crate::config::{DnsSource, PoolConfig};

/// Misses in a row after which an address leaves.
const MISSES_MAX: u32 = 3;
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(5);

/// Follows the sources of a pool until the pool is gone.
pub(super) async fn follow(pool: Weak<Pool>) {
    let Some(mut config) = pool.upgrade().map(|pool| pool.config()) else {
        return;
    };
    let mut replicas = SourceReplicas::default();
    let mut name = ResolvedName::default();
    loop {
        let current = Arc::clone(&config.borrow_and_update());
        match &current.sources.dns {
            Some(dns) => name.update(dns, resolve(dns).await),
            None => name = ResolvedName::default(),
        }
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let fixed = current.sources.fixed.iter().copied();
        replicas.apply(&pool, fixed.chain(name.addresses()).collect());
        // With a name that was never resolved as its only source, a pool has not synced.
        if name.is_resolved || current.sources.dns.is_none() || !current.sources.fixed.is_empty() {
            pool.mark_synced();
        }
        drop(pool);
        let interval = current.sources.dns.as_ref().map(|dns| dns.interval);
        if !wait(interval, &mut config).await {
            return;
        }
    }
}

/// Waits for the next resolution or a changed configuration; false when the pool is gone.
async fn wait(interval: Option<Duration>, config: &mut watch::Receiver<Arc<PoolConfig>>) -> bool {
    let next_resolution = async {
        match interval {
            Some(interval) => tokio::time::sleep(interval).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = next_resolution => true,
        changed = config.changed() => changed.is_ok(),
    }
}

async fn resolve(dns: &DnsSource) -> Result<Vec<SocketAddr>, String> {
    let lookup = tokio::net::lookup_host((dns.name.as_str(), dns.port));
    match tokio::time::timeout(RESOLVE_TIME_MAX, lookup).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_TIME_MAX.as_secs())),
    }
}

/// The addresses of a DNS name over several resolutions.
#[derive(Debug, Default)]
struct ResolvedName {
    source: Option<(String, u16)>,
    /// Misses in a row of each address.
    misses: BTreeMap<SocketAddr, u32>,
    is_resolved: bool,
    is_failing: bool,
}

impl ResolvedName {
    fn update(&mut self, dns: &DnsSource, answer: Result<Vec<SocketAddr>, String>) {
        let source = (dns.name.clone(), dns.port);
        if self.source.as_ref() != Some(&source) {
            *self = Self {
                source: Some(source),
                ..Self::default()
            };
        }
        match answer {
            Ok(addresses) => {
                self.is_failing = false;
                self.is_resolved = true;
                for misses in self.misses.values_mut() {
                    *misses += 1;
                }
                self.misses
                    .extend(addresses.into_iter().map(|address| (address, 0)));
                self.misses.retain(|_, misses| *misses < MISSES_MAX);
            }
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!(
                    name = dns.name,
                    error,
                    "cannot be resolved; its replicas stay as they are"
                );
            }
            Err(_) => {}
        }
    }

    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.misses.keys().copied()
    }
}

#[derive(Debug, Default)]
struct SourceReplicas {
    /// Last addresses of the sources.
    wanted: BTreeSet<SocketAddr>,
    /// Wanted addresses that the sources have added.
    added: BTreeSet<SocketAddr>,
}

impl SourceReplicas {
    fn apply(&mut self, pool: &Pool, wanted: BTreeSet<SocketAddr>) {
        for addr in self.wanted.difference(&wanted) {
            // A replica that the pool does not have was removed by an operator.
            if self.added.remove(addr) && pool.remove_replica(*addr).is_ok() {
                tracing::info!(pool = %pool.name(), replica = %addr, "replica removed: its source does not list it");
            }
        }
        for addr in wanted.difference(&self.wanted) {
            match pool.add_replica(*addr) {
                Ok(_) => {
                    self.added.insert(*addr);
                    tracing::info!(pool = %pool.name(), replica = %addr, "replica added");
                }
                Err(error) => tracing::warn!(pool = %pool.name(), %error, "replica not added"),
            }
        }
        self.wanted = wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn dns(name: &str) -> DnsSource {
        DnsSource {
            name: name.into(),
            port: 80,
            interval: Duration::from_secs(1),
        }
    }

    fn resolve_all(answers: &[Result<&[u8], ()>]) -> Vec<SocketAddr> {
        let mut resolved = ResolvedName::default();
        for answer in answers {
            let answer = answer.map(|last| last.iter().copied().map(addr).collect());
            resolved.update(&dns("a"), answer.map_err(|()| "no such name".into()));
        }
        resolved.addresses().collect()
    }

    #[test]
    fn an_address_leaves_after_three_misses_in_a_row() {
        let (both, one): (&[u8], &[u8]) = (&[1, 2], &[1]);
        assert_eq!(
            resolve_all(&[Ok(both), Ok(one), Ok(one)]),
            [addr(1), addr(2)]
        );
        assert_eq!(
            resolve_all(&[Ok(both), Ok(one), Ok(one), Ok(one)]),
            [addr(1)]
        );
        let returned = [Ok(both), Ok(one), Ok(one), Ok(both), Ok(one), Ok(one)];
        assert_eq!(resolve_all(&returned), [addr(1), addr(2)]);
    }

    #[test]
    fn a_failed_resolution_removes_no_replica() {
        let failures = [Ok(&[1][..]), Err(()), Err(()), Err(()), Err(())];
        assert_eq!(resolve_all(&failures), [addr(1)]);
    }

    #[test]
    fn a_changed_name_starts_without_addresses() {
        let mut resolved = ResolvedName::default();
        resolved.update(&dns("a"), Ok(vec![addr(1)]));
        resolved.update(&dns("b"), Ok(vec![addr(2)]));
        assert_eq!(resolved.addresses().collect::<Vec<_>>(), [addr(2)]);
    }
}
