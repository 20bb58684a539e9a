//! Keeps a pool's replicas what the file says: its fixed list, and the addresses of its name.
//!
//! Only differences are acted on. A replica that an operator removes or drains by hand stays as they left it until
//! the file or the name says something new; one that an operator added is never touched. Name servers hand out
//! some of many addresses, in turn, so an address must be missing several times in a row before its replica goes;
//! and a name that cannot be resolved takes nobody away. That goes for a service that starts, too: while nothing is
//! known of a pool's replicas, it leaves Envoy with those that it has ([`Pool::has_synced`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use crate::config::{DnsSource, PoolConfig};
use crate::pool::Pool;

/// How often in a row an address must be missing from the answers before its replica goes.
const MISSES_MAX: u32 = 3;
/// How long one resolution may take.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(5);

/// Follows the configuration of a pool until the pool is gone.
pub(crate) async fn follow(pool: Weak<Pool>) {
    let Some(mut config) = pool.upgrade().map(|pool| pool.config()) else {
        return;
    };
    let mut owned = Owned::default();
    let mut resolved = Resolved::default();
    loop {
        let current = Arc::clone(&config.borrow_and_update());
        match &current.sources.dns {
            Some(dns) => resolved.update(dns, resolve(dns).await),
            None => resolved = Resolved::default(),
        }
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let fixed = current.sources.fixed.iter().copied();
        owned.become_these(&pool, fixed.chain(resolved.addresses()).collect());
        // Where there is nothing but a name, and it was never resolved, it is still unknown who there is.
        if resolved.answered || current.sources.dns.is_none() || !current.sources.fixed.is_empty() {
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
    let resolve_again = async {
        match interval {
            Some(interval) => tokio::time::sleep(interval).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = resolve_again => true,
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

/// What a name stood for, over several answers.
#[derive(Debug, Default)]
struct Resolved {
    source: Option<(String, u16)>,
    /// Each address, and how often in a row it was missing.
    misses: BTreeMap<SocketAddr, u32>,
    /// It was resolved at least once.
    answered: bool,
    failing: bool,
}

impl Resolved {
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
                self.failing = false;
                self.answered = true;
                for misses in self.misses.values_mut() {
                    *misses += 1;
                }
                for address in addresses {
                    self.misses.insert(address, 0);
                }
                self.misses.retain(|_, misses| *misses < MISSES_MAX);
            }
            Err(error) if !self.failing => {
                self.failing = true;
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

/// The replicas that came from here.
#[derive(Debug, Default)]
struct Owned {
    /// What the sources said last.
    wanted: BTreeSet<SocketAddr>,
    /// Of these, the ones that were added from here.
    added: BTreeSet<SocketAddr>,
}

impl Owned {
    fn become_these(&mut self, pool: &Pool, wanted: BTreeSet<SocketAddr>) {
        for addr in self.wanted.difference(&wanted) {
            // One that is not in the pool any more was removed by hand.
            if self.added.remove(addr) && pool.remove_replica(*addr).is_ok() {
                tracing::info!(pool = %pool.name(), replica = %addr, "replica is gone from its source");
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

    fn after(answers: &[Result<&[u8], ()>]) -> Vec<SocketAddr> {
        let mut resolved = Resolved::default();
        for answer in answers {
            let answer = answer.map(|last| last.iter().copied().map(addr).collect());
            resolved.update(&dns("a"), answer.map_err(|()| "no such name".into()));
        }
        resolved.addresses().collect()
    }

    #[test]
    fn an_address_goes_when_it_was_missing_three_times_in_a_row() {
        let (both, one): (&[u8], &[u8]) = (&[1, 2], &[1]);
        assert_eq!(after(&[Ok(both), Ok(one), Ok(one)]), [addr(1), addr(2)]);
        assert_eq!(after(&[Ok(both), Ok(one), Ok(one), Ok(one)]), [addr(1)]);
        let returned = [Ok(both), Ok(one), Ok(one), Ok(both), Ok(one), Ok(one)];
        assert_eq!(after(&returned), [addr(1), addr(2)]);
    }

    #[test]
    fn a_name_that_cannot_be_resolved_takes_nobody_away() {
        let failures = [Ok(&[1][..]), Err(()), Err(()), Err(()), Err(())];
        assert_eq!(after(&failures), [addr(1)]);
    }

    #[test]
    fn another_name_starts_anew() {
        let mut resolved = Resolved::default();
        resolved.update(&dns("a"), Ok(vec![addr(1)]));
        resolved.update(&dns("b"), Ok(vec![addr(2)]));
        assert_eq!(resolved.addresses().collect::<Vec<_>>(), [addr(2)]);
    }
}
