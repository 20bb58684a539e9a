//! Rules over the service and its replicas.

use super::Installation;
use super::fault::Fault;
use super::service::ServiceState;
use crate::admin::view::{PoolView, ReplicaView};
use crate::cli::models::ModelsAnswer;

/// The faults of the service's pools and of the replicas.
pub(super) fn faults(installation: &Installation) -> Vec<Fault> {
    let Ok(service) = &installation.service else {
        return silent_endpoints(installation);
    };
    let mut faults = Vec::new();
    for pool in &service.pools {
        faults.extend(without_replicas(pool));
        faults.extend(overridden(pool));
        faults.extend(timed_out(pool));
    }
    for replica in &service.replicas {
        let answer = installation.replicas.iter();
        let answer = answer
            .filter(|(address, _)| address.to_string() == replica.address)
            .map(|(_, answer)| answer)
            .next();
        let Some(answer) = answer else { continue };
        faults.extend(replica_fault(replica, answer));
        faults.extend(other_model(service, replica, answer));
    }
    faults
}

/// Without the service, the endpoints that Envoy still has.
fn silent_endpoints(installation: &Installation) -> Vec<Fault> {
    let replicas = installation.replicas.iter();
    let silent = replicas.filter_map(|(address, answer)| match answer {
        ModelsAnswer::Silent(reason) => Some(dead(&address.to_string(), reason)),
        _ => None,
    });
    silent.collect()
}

fn dead(address: &str, reason: &str) -> Fault {
    Fault::error(
        "dead-replica",
        format!("the replica {address} does not answer: {reason}"),
        format!(
            "start its engine, or take it out of the configuration (`isotherm replicas remove {address}` until then)"
        ),
    )
}

fn without_replicas(pool: &PoolView) -> Option<Fault> {
    if let Some(reason) = &pool.source_problem {
        return Some(Fault::error(
            "no-source",
            format!(
                "the source of the replicas of {} fails: {reason}",
                pool.pool
            ),
            "correct `replicas` of the pool, or mend its source",
        ));
    }
    (pool.replicas == 0).then(|| {
        Fault::error(
            "no-replicas",
            format!("the pool {} has no replica", pool.pool),
            "name its replicas in the configuration, or add one by `isotherm replicas add HOST:PORT`",
        )
    })
}

fn overridden(pool: &PoolView) -> Option<Fault> {
    let count = pool.counters.overridden;
    (count > 0).then(|| {
        Fault::warning(
            "decisions-overridden",
            format!(
                "since its start the service has seen {count} requests of {} sent elsewhere than to their selected replica",
                pool.pool
            ),
            "the service's log names the cluster: remove the route or the balancer that overrides the decision",
        )
    })
}

fn timed_out(pool: &PoolView) -> Option<Fault> {
    let count = pool.counters.timed_out;
    (count > 0).then(|| {
        Fault::warning(
            "requests-timed-out",
            format!(
                "since its start the service has seen timeouts of Envoy end {count} requests of {}: replicas may look as if they failed",
                pool.pool
            ),
            "set `timeout: 0s` on the routes, and no `per_try_timeout`",
        )
    })
}

/// A replica that the service cannot use. A replica that serves is none, also where this command cannot reach it.
fn replica_fault(replica: &ReplicaView, answer: &ModelsAnswer) -> Option<Fault> {
    let reason = match replica.availability.as_str() {
        "never_probed" => "the service has not reached it yet",
        "probe_failed" => "its last probe failed",
        "stale" => "its probes bring nothing new",
        "failing" => "its requests fail",
        "hung" => "it accepts requests and sends nothing",
        _ => return None,
    };
    let address = &replica.address;
    if let ModelsAnswer::Silent(silence) = answer {
        return Some(dead(address, silence));
    }
    Some(Fault::error(
        "replica-unavailable",
        format!("the replica {address} answers this command, and gets no requests: {reason}"),
        "read the log of its engine, and the service's: the probe's path and time are options of `pools[].probe`",
    ))
}

/// A replica whose list has no name of its pool.
fn other_model(
    service: &ServiceState,
    replica: &ReplicaView,
    answer: &ModelsAnswer,
) -> Option<Fault> {
    let ModelsAnswer::Models(models) = answer else {
        return None;
    };
    let mut pools = service.pools.iter();
    let pool = pools.find(|pool| pool.pool == replica.pool)?;
    let is_own = |name: &String| *name == pool.pool || pool.aliases.contains(name);
    if pool.pool == "*" || models.iter().any(|model| is_own(&model.id)) {
        return None;
    }
    Some(Fault::warning(
        "other-model",
        format!(
            "the replica {} serves {}, and its pool is for {}",
            replica.address,
            answer.names().join(", "),
            pool.pool
        ),
        "move the replica to another pool, or name the model as its engine does",
    ))
}
