//! Rules over Envoy: the filter that it loads, the requests that the filter sees, and the clusters that Envoy shares with the
//! service.

use isotherm_envoy_config::check::{Mistake, Severity};

use super::Installation;
use super::envoy::{EnvoyState, Host};
use super::fault::Fault;
use super::service::ServiceState;

/// Prefix of the filter's counters.
const COUNTER: &str = "wasmcustom.isotherm_filter_";

/// The faults of Envoy.
pub(super) fn faults(installation: &Installation) -> Vec<Fault> {
    let Ok(envoy) = &installation.envoy else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    faults.extend(not_live(envoy));
    if !envoy.summary.has_filter {
        faults.push(Fault::error(
            "no-filter",
            format!(
                "no listener of the Envoy at {} has Isotherm's filters",
                envoy.address
            ),
            "add them by `isotherm envoy add --route PREFIX FILE`, or name another Envoy by --envoy-admin",
        ));
        return faults;
    }
    faults.extend(not_loaded(envoy));
    faults.extend(mistakes(envoy));
    faults.extend(inert(envoy, &faults));
    faults.extend(withheld(envoy));
    faults.extend(paths_without_api(envoy));
    let unreached = service_cluster(envoy);
    let is_reached = unreached.is_none();
    faults.extend(unreached);
    if let Ok(service) = &installation.service {
        faults.extend(clusters(envoy, service));
        if is_reached {
            faults.extend(no_streams(envoy, service));
            faults.extend(no_endpoints(envoy, service));
        }
    }
    faults
}

fn not_live(envoy: &EnvoyState) -> Option<Fault> {
    (envoy.state != "LIVE").then(|| {
        Fault::error(
            "envoy-not-live",
            format!(
                "Envoy is in the state {} and takes no requests",
                envoy.state
            ),
            "wait for its start, or read its log",
        )
    })
}

/// An Envoy whose listeners came by discovery runs without a module that it cannot load.
fn not_loaded(envoy: &EnvoyState) -> Option<Fault> {
    let active = envoy.sum(|name| name.starts_with("wasm.") && name.ends_with(".active"));
    (active == Some(0)).then(|| {
        Fault::error(
            "filter-not-loaded",
            "Envoy has the filter in its configuration, and runs no instance of the module",
            "read Envoy's log for the reason; `code.local.filename` must be isotherm_filter.wasm where Envoy runs",
        )
    })
}

/// Each rule of `isotherm envoy check` that the running configuration violates, once.
fn mistakes(envoy: &EnvoyState) -> Vec<Fault> {
    let mut seen: Vec<&Mistake> = Vec::new();
    for mistake in &envoy.mistakes {
        if !seen.iter().any(|other| other.rule == mistake.rule) {
            seen.push(mistake);
        }
    }
    let faults = seen.into_iter().map(|mistake| Fault {
        name: mistake.rule,
        severity: mistake.severity,
        problem: mistake.hazard.clone(),
        remedy: format!(
            "{} (`isotherm envoy check --admin http://{}` shows each place)",
            mistake.remedy, envoy.address
        ),
    });
    faults.collect()
}

/// A filter without a request in front of clients that get answers. Another rule may know the reason already.
fn inert(envoy: &EnvoyState, known: &[Fault]) -> Option<Fault> {
    let is_of_request = |name: &str| {
        let own = name.strip_prefix(COUNTER);
        own.is_some_and(|name| {
            let families = ["prompts_", "skipped_", "rejected_paths", "passed_paths"];
            families.iter().any(|family| name.starts_with(family))
        })
    };
    let seen = envoy.sum(is_of_request)?;
    let answered = envoy
        .sum(|name| name.ends_with(".downstream_rq_2xx") && !name.starts_with("http.admin."))?;
    let has_error = known.iter().any(|fault| fault.severity == Severity::Error);
    (seen == 0 && answered > 0 && !has_error).then(|| {
        Fault::warning(
            "filter-sees-no-request",
            format!("Envoy has answered {answered} requests, and the filter has seen none"),
            "send a request to a route of Isotherm; if it stays unseen, name its route: `isotherm envoy add --route PREFIX`",
        )
    })
}

fn withheld(envoy: &EnvoyState) -> Option<Fault> {
    let name = format!("{COUNTER}skipped_body_withheld");
    let count = envoy.stat(&name).filter(|count| *count > 0)?;
    Some(Fault::error(
        "bodies-withheld",
        format!(
            "Envoy withheld the bodies of {count} requests from the filter: decisions rest on headers alone"
        ),
        "set `allow_on_headers_stop_iteration: true` in the filter's `config` (docs/filter-configuration.md), and restart Envoy",
    ))
}

fn paths_without_api(envoy: &EnvoyState) -> Option<Fault> {
    let name = format!("{COUNTER}skipped_unknown_path");
    let count = envoy.stat(&name).filter(|count| *count > 0)?;
    Some(Fault::warning(
        "paths-without-api",
        format!(
            "{count} requests went to paths that belong to no API: their prompts were not read"
        ),
        "name the API of such a path in `apis` of the filter and of the service, or take the path off their `paths`",
    ))
}

/// The cluster of the service, as Envoy's health checks see it.
fn service_cluster(envoy: &EnvoyState) -> Option<Fault> {
    let name = envoy.summary.service_cluster.as_ref()?;
    let Some(cluster) = envoy.cluster(name) else {
        return Some(Fault::error(
            "no-service-cluster",
            format!("the filter asks the cluster {name}, which Envoy does not have"),
            "add the cluster of the service to `static_resources.clusters`, as envoy/standalone.yaml has it",
        ));
    };
    if cluster.hosts.iter().any(Host::is_healthy) {
        return None;
    }
    let hosts = cluster.hosts.iter().filter_map(Host::address);
    let hosts: Vec<String> = hosts.map(|address| address.to_string()).collect();
    Some(Fault::error(
        "service-unreached",
        format!(
            "Envoy does not reach the service: its cluster {name} has no healthy host ({})",
            hosts.join(", ")
        ),
        "start the service, and give its `listen` and this cluster the same address",
    ))
}

/// Clusters that only one of Envoy and the service has.
fn clusters(envoy: &EnvoyState, service: &ServiceState) -> Vec<Fault> {
    let mut faults = Vec::new();
    let remedy = "give `pools[].cluster` of the service, Envoy's cluster, and `pools` of the filter the same name";
    for pool in &service.pools {
        if envoy.cluster(&pool.cluster).is_none() {
            let problem = format!(
                "the pool {} has the cluster {}, which Envoy does not have: no request reaches its replicas",
                pool.pool, pool.cluster
            );
            faults.push(Fault::error("no-pool-cluster", problem, remedy));
        }
    }
    for name in &envoy.summary.pools {
        let discovered = match envoy.cluster(name) {
            Some(cluster) => cluster.eds_service_name.as_ref(),
            None => Some(name),
        };
        let Some(discovered) = discovered else {
            continue;
        };
        if !service.pools.iter().any(|pool| pool.cluster == *discovered) {
            let problem = format!(
                "Envoy sends requests to the cluster {name}, which no pool of the service has: it gets no endpoints"
            );
            faults.push(Fault::error("no-pool", problem, remedy));
        }
    }
    faults
}

fn no_streams(envoy: &EnvoyState, service: &ServiceState) -> Option<Fault> {
    envoy.summary.service_cluster.as_ref()?;
    (service.decision_streams == Some(0)).then(|| {
        Fault::error(
            "no-decision-stream",
            "Envoy's cluster of the service is healthy, and the service has no decision stream from it",
            "read Envoy's log for the reason; does this Envoy ask another service (`listen`, the cluster's address)?",
        )
    })
}

fn no_endpoints(envoy: &EnvoyState, service: &ServiceState) -> Vec<Fault> {
    let pools = service
        .pools
        .iter()
        .filter(|pool| pool.available_replicas > 0);
    let empty = pools.filter(|pool| {
        let cluster = envoy.cluster(&pool.cluster);
        cluster.is_some_and(|cluster| cluster.hosts.is_empty())
    });
    let faults = empty.map(|pool| {
        Fault::error(
            "no-endpoints",
            format!(
                "the pool {} has {} available replicas, and Envoy's cluster {} no endpoint",
                pool.pool, pool.available_replicas, pool.cluster
            ),
            "let the cluster get its endpoints from the service (`eds_cluster_config` of envoy/standalone.yaml)",
        )
    });
    faults.collect()
}
