//! Each fault, made in the answers of an installation that has none.

use std::collections::BTreeMap;

use isotherm_envoy_config::check::{Severity, Summary};
use serde_json::json;

use super::envoy::{Cluster, EnvoyState};
use super::fault::Fault;
use super::service::ServiceState;
use super::{Installation, faults};
use crate::admin::view::{CountersView, PoolView, ReplicaView};
use crate::cli::models::ModelsAnswer;
use crate::config::Address;

const REPLICA: &str = "127.0.0.1:8001";

fn cluster(name: &str, discovered: bool, hosts: &[(&str, u16, bool)]) -> Cluster {
    let hosts = hosts.iter().map(|(address, port, is_failed)| {
        json!({
            "address": { "socket_address": { "address": address, "port_value": port } },
            "health_status": { "failed_active_health_check": is_failed },
        })
    });
    let hosts: Vec<_> = hosts.collect();
    let mut status = json!({ "name": name, "host_statuses": hosts });
    if discovered {
        status["eds_service_name"] = name.into();
    }
    serde_json::from_value(status).unwrap()
}

fn healthy_envoy() -> EnvoyState {
    let stats = [
        ("wasm.envoy.wasm.runtime.v8.active", 3),
        ("wasmcustom.isotherm_filter_prompts_complete", 5),
        ("wasmcustom.isotherm_filter_skipped_body_withheld", 0),
        ("http.admin.downstream_rq_2xx", 9),
        ("http.llm.downstream_rq_2xx", 5),
    ];
    EnvoyState {
        address: "127.0.0.1:9901".to_owned(),
        state: "LIVE".to_owned(),
        stats: BTreeMap::from(stats.map(|(name, value)| (name.to_owned(), value))),
        clusters: vec![
            cluster("isotherm", false, &[("127.0.0.1", 9002, false)]),
            cluster("llama", true, &[("127.0.0.1", 8001, false)]),
        ],
        summary: Summary {
            has_filter: true,
            pools: vec!["llama".to_owned()],
            service_cluster: Some("isotherm".to_owned()),
        },
        mistakes: Vec::new(),
    }
}

fn healthy_service() -> ServiceState {
    let pool = json!({
        "pool": "m", "aliases": ["n"], "cluster": "llama", "policy": "isotherm", "push": "pending", "replicas": 1,
        "available_replicas": 1, "queue_length": 0, "oldest_wait_ms": 0, "in_flight": 0, "index_nodes": 0, "index_bytes": 0,
        "counters": CountersView::default(),
    });
    let replica = json!({
        "pool": "m", "address": REPLICA, "availability": "available", "draining": false, "outstanding": 0,
    });
    ServiceState {
        pools: vec![serde_json::from_value::<PoolView>(pool).unwrap()],
        replicas: vec![serde_json::from_value::<ReplicaView>(replica).unwrap()],
        decision_streams: Some(3),
    }
}

fn models(name: &str) -> ModelsAnswer {
    let model = json!({ "id": name });
    ModelsAnswer::Models(vec![serde_json::from_value(model).unwrap()])
}

fn healthy() -> Installation {
    Installation {
        envoy: Ok(healthy_envoy()),
        service: Ok(healthy_service()),
        replicas: vec![(Address::parse(REPLICA).unwrap(), models("n"))],
    }
}

/// The faults of an installation after a change, as `severity name`.
fn after(
    change: impl FnOnce(&mut EnvoyState, &mut ServiceState, &mut ModelsAnswer),
) -> Vec<String> {
    let mut installation = healthy();
    let Installation {
        envoy: Ok(envoy),
        service: Ok(service),
        replicas,
    } = &mut installation
    else {
        unreachable!("the installation is healthy");
    };
    change(envoy, service, &mut replicas[0].1);
    names(&faults(&installation))
}

fn names(faults: &[Fault]) -> Vec<String> {
    let names = faults.iter();
    names
        .map(|fault| format!("{} {}", fault.severity, fault.name))
        .collect()
}

#[test]
fn a_healthy_installation_has_no_fault() {
    assert!(faults(&healthy()).is_empty());
}

#[test]
fn an_envoy_without_the_filter_is_one_fault() {
    let found = after(|envoy, _, _| {
        envoy.summary = Summary::default();
        envoy.stats.clear();
    });
    assert_eq!(found, ["error no-filter"]);
}

#[test]
fn a_module_that_does_not_run_is_named() {
    let found = after(|envoy, _, _| {
        envoy
            .stats
            .insert("wasm.envoy.wasm.runtime.v8.active".to_owned(), 0);
    });
    assert_eq!(found, ["error filter-not-loaded"]);
}

#[test]
fn a_filter_that_sees_no_request_while_envoy_answers_is_named() {
    let found = after(|envoy, _, _| {
        let name = "wasmcustom.isotherm_filter_prompts_complete";
        envoy.stats.insert(name.to_owned(), 0);
    });
    assert_eq!(found, ["warning filter-sees-no-request"]);
    let before_traffic = after(|envoy, _, _| {
        for name in [
            "wasmcustom.isotherm_filter_prompts_complete",
            "http.llm.downstream_rq_2xx",
        ] {
            envoy.stats.insert(name.to_owned(), 0);
        }
    });
    assert!(before_traffic.is_empty(), "{before_traffic:?}");
}

#[test]
fn an_unhealthy_cluster_of_the_service_is_named_alone() {
    let found = after(|envoy, service, _| {
        envoy.clusters[0] = cluster("isotherm", false, &[("127.0.0.1", 9002, true)]);
        service.decision_streams = Some(0);
    });
    assert_eq!(found, ["error service-unreached"]);
}

#[test]
fn a_service_without_a_decision_stream_is_named() {
    let found = after(|_, service, _| service.decision_streams = Some(0));
    assert_eq!(found, ["error no-decision-stream"]);
}

#[test]
fn a_cluster_that_only_one_side_has_is_named_on_both_sides() {
    let found = after(|_, service, _| service.pools[0].cluster = "lama".to_owned());
    assert_eq!(found, ["error no-pool-cluster", "error no-pool"]);
}

#[test]
fn a_cluster_without_endpoints_is_named() {
    let found = after(|envoy, _, _| envoy.clusters[1] = cluster("llama", true, &[]));
    assert_eq!(found, ["error no-endpoints"]);
}

#[test]
fn a_dead_replica_is_told_from_one_that_the_service_cannot_use() {
    let refused = || ModelsAnswer::Silent("connection refused".to_owned());
    let found = after(|_, service, answer| {
        service.replicas[0].availability = "probe_failed".to_owned();
        *answer = refused();
    });
    assert_eq!(found, ["error dead-replica"]);
    let found = after(|_, service, _| service.replicas[0].availability = "failing".to_owned());
    assert_eq!(found, ["error replica-unavailable"]);
    // The service reaches a replica that this machine does not reach.
    assert!(after(|_, _, answer| *answer = refused()).is_empty());
}

#[test]
fn a_replica_of_another_model_is_a_warning() {
    let found = after(|_, _, answer| *answer = models("other"));
    assert_eq!(found, ["warning other-model"]);
}

#[test]
fn counters_of_the_past_are_warnings_apart_from_withheld_bodies() {
    let found = after(|envoy, service, _| {
        for name in ["skipped_body_withheld", "skipped_unknown_path"] {
            envoy
                .stats
                .insert(format!("wasmcustom.isotherm_filter_{name}"), 2);
        }
        service.pools[0].counters.overridden = 1;
        service.pools[0].counters.timed_out = 1;
    });
    assert_eq!(
        found,
        [
            "error bodies-withheld",
            "warning paths-without-api",
            "warning decisions-overridden",
            "warning requests-timed-out"
        ]
    );
}

#[test]
fn without_the_service_the_endpoints_of_envoy_are_asked() {
    let fault = Fault::error("no-service", "closed", "start it");
    let installation = Installation {
        service: Err(fault),
        replicas: vec![(
            Address::parse(REPLICA).unwrap(),
            ModelsAnswer::Silent("connection refused".to_owned()),
        )],
        ..healthy()
    };
    assert_eq!(
        names(&faults(&installation)),
        ["error no-service", "error dead-replica"]
    );
    assert_eq!(
        healthy_envoy().addresses(),
        [Address::parse(REPLICA).unwrap()]
    );
}

#[test]
fn a_fault_is_one_line_with_its_remedy() {
    let fault = Fault::error("no-envoy", "Envoy does not answer", "start Envoy");
    assert_eq!(
        fault.to_string(),
        "error: no-envoy: Envoy does not answer -> start Envoy"
    );
    assert_eq!(fault.severity, Severity::Error);
}
