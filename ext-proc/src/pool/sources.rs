//! Keeps the replicas of a pool in step with its sources: the fixed list, the addresses of a DNS name, and the replicas
//! that Kubernetes lists.
//!
//! Only differences have an effect. A replica that an operator removes or drains stays that way until its source
//! changes, and a replica that an operator adds is never removed. Name servers return some of many addresses in turn, so
//! a replica leaves only after its address was missing several times in a row. A source that does not answer removes no
//! replica. This also holds at the start: until a pool has synced, Envoy keeps the endpoints that it has
//! ([`Pool::has_synced`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::Pool;
use super::source_replicas::SourceReplicas;
use crate::config::{Address, KubernetesSource, PoolConfig, Sources};
use crate::kubernetes::{
    self, DiscoveredReplica, DiscoveredReplicas, Follower, KubernetesClient, SourceReport,
};

/// Misses in a row after which an address leaves.
const MISSES_MAX: u32 = 3;
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(5);
/// The time between two resolutions of a name.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the sources of a pool until the pool is gone.
pub(super) async fn follow(pool: Weak<Pool>, client: KubernetesClient) {
    let Some(mut config) = pool.upgrade().map(|pool| pool.config()) else {
        return;
    };
    let mut replicas = SourceReplicas::default();
    let mut name = ResolvedName::default();
    let mut discovery = Discovery::default();
    loop {
        let current = Arc::clone(&config.borrow_and_update());
        match &current.sources.dns {
            Some(dns) => name.update(dns, resolve(dns).await),
            None => name = ResolvedName::default(),
        }
        let Some(pool) = pool.upgrade() else {
            return;
        };
        let source = current.sources.kubernetes.as_ref();
        discovery.update(source, &client, "replicas", Some(pool.name()));
        replicas.apply(&pool, wanted(&current.sources, &name, &discovery));
        pool.set_source_problem(name.problem().or_else(|| discovery.report.problem.clone()));
        // With a source that has never answered as its only one, a pool has not synced. Kubernetes always counts, since
        // the start of this service must not take endpoints away from an Envoy.
        let has_addresses =
            name.is_resolved || current.sources.dns.is_none() || !current.sources.fixed.is_empty();
        if has_addresses && discovery.has_synced() {
            pool.mark_synced();
        }
        drop(pool);
        let has_name = current.sources.dns.is_some();
        if !wait(has_name, &mut config, &mut discovery).await {
            return;
        }
    }
}

/// All replicas of the sources. A fixed address does not drain.
fn wanted(sources: &Sources, name: &ResolvedName, discovery: &Discovery) -> DiscoveredReplicas {
    let mut wanted = DiscoveredReplicas::default();
    for replica in &sources.fixed {
        let discovered = DiscoveredReplica {
            role: replica.role,
            ..DiscoveredReplica::default()
        };
        wanted.add(replica.address, discovered);
    }
    for address in name.addresses() {
        wanted.add(address, DiscoveredReplica::default());
    }
    for (address, replica) in discovery.replicas() {
        wanted.add(address, replica);
    }
    wanted
}

/// Waits for the next resolution, a report of Kubernetes or a changed configuration; false when the pool is gone.
async fn wait(
    has_name: bool,
    config: &mut watch::Receiver<Arc<PoolConfig>>,
    discovery: &mut Discovery,
) -> bool {
    let next_resolution = async {
        match has_name {
            true => tokio::time::sleep(RESOLVE_INTERVAL).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        () = next_resolution => true,
        () = discovery.changed() => true,
        changed = config.changed() => changed.is_ok(),
    }
}

/// The replicas, or the siblings, that Kubernetes lists, through changes of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    source: Option<KubernetesSource>,
    follower: Option<Follower>,
    /// Last report. The replicas of an earlier source stay until the first list of the current one.
    report: SourceReport,
}

impl Discovery {
    /// Follows `source` from now on, and takes its news. Logs call what it shows by `noun`, and name the `pool` that it belongs to.
    pub(crate) fn update(
        &mut self,
        source: Option<&KubernetesSource>,
        client: &KubernetesClient,
        noun: &'static str,
        pool: Option<&str>,
    ) {
        if self.source.as_ref() != source {
            self.source = source.cloned();
            let follow =
                |source: &KubernetesSource| kubernetes::follow(client, source.clone(), noun, pool);
            self.follower = source.map(follow);
        }
        let Some(follower) = &mut self.follower else {
            self.report = SourceReport::default();
            return;
        };
        let SourceReport { replicas, problem } = follower.reports.borrow_and_update().clone();
        self.report.problem = problem;
        if replicas.is_some() {
            self.report.replicas = replicas;
        }
    }

    /// Whether there is no source, or its replicas have arrived.
    fn has_synced(&self) -> bool {
        self.source.is_none() || self.report.replicas.is_some()
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = (SocketAddr, DiscoveredReplica)> {
        self.report
            .replicas
            .iter()
            .flat_map(|replicas| replicas.iter())
    }

    /// Waits for a new report.
    pub(crate) async fn changed(&mut self) {
        let is_followed = match &mut self.follower {
            Some(follower) => follower.reports.changed().await.is_ok(),
            None => false,
        };
        if !is_followed {
            std::future::pending::<()>().await;
        }
    }
}

async fn resolve(dns: &Address) -> Result<Vec<SocketAddr>, String> {
    let lookup = tokio::net::lookup_host(dns.to_string());
    match tokio::time::timeout(RESOLVE_TIME_MAX, lookup).await {
        Ok(Ok(addresses)) => Ok(addresses.collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_TIME_MAX.as_secs())),
    }
}

/// The addresses of a DNS name over several resolutions.
#[derive(Debug, Default)]
struct ResolvedName {
    source: Option<Address>,
    /// Misses in a row of each address.
    misses: BTreeMap<SocketAddr, u32>,
    is_resolved: bool,
    problem: Option<Arc<str>>,
}

impl ResolvedName {
    fn update(&mut self, dns: &Address, answer: Result<Vec<SocketAddr>, String>) {
        if self.source.as_ref() != Some(dns) {
            *self = Self {
                source: Some(dns.clone()),
                ..Self::default()
            };
        }
        match answer {
            Ok(addresses) => {
                self.problem = None;
                self.is_resolved = true;
                for misses in self.misses.values_mut() {
                    *misses += 1;
                }
                self.misses
                    .extend(addresses.into_iter().map(|address| (address, 0)));
                self.misses.retain(|_, misses| *misses < MISSES_MAX);
            }
            Err(error) => {
                if self.problem.is_none() {
                    tracing::warn!(
                        name = %dns,
                        error,
                        "cannot be resolved; its replicas stay as they are"
                    );
                }
                let problem = format!("`{dns}` cannot be resolved: {error}");
                self.problem = Some(problem.into());
            }
        }
    }

    /// Why the name has no addresses now.
    fn problem(&self) -> Option<Arc<str>> {
        self.problem.clone()
    }

    /// The addresses of one family: both of a name with two lead to the same engines. IPv4 comes first, as with Kubernetes.
    fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        let has_ipv4 = self.misses.keys().any(SocketAddr::is_ipv4);
        let all = self.misses.keys().copied();
        all.filter(move |address| address.is_ipv4() == has_ipv4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(last: u8) -> SocketAddr {
        ([10, 0, 0, last], 80).into()
    }

    fn dns(name: &str) -> Address {
        Address::Name(name.to_owned(), 80)
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
    fn a_name_with_addresses_of_two_families_has_those_of_one() {
        let v6: SocketAddr = "[::1]:80".parse().unwrap();
        let mut resolved = ResolvedName::default();
        let mut shown = |answer: &[SocketAddr]| {
            resolved.update(&dns("a"), Ok(answer.to_vec()));
            Vec::from_iter(resolved.addresses())
        };
        assert_eq!(shown(&[v6, addr(1)]), [addr(1)]);
        // One answer without the family is a miss, and three are a change.
        assert_eq!(shown(&[v6]), [addr(1)]);
        assert_eq!(shown(&[v6]), [addr(1)]);
        assert_eq!(shown(&[v6]), [v6]);
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
