//! `docs/metrics.md`: the registry's own page, encoded with one sample of everything, as a table.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use isotherm_regions::{RegionState, RegionsCounters};
use isotherm_router::{
    Availability, Counters, Load, PeerAvailability, PeerId, PeerReport, PeerStatus, Reason,
    RejectReason, ReplicaId, ReplicaStatus, Stats, Time,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use super::pools::{self, PoolSnapshot};
use super::{Metrics, PREFIX, ProbeMetrics, RequestResult, regions};
use crate::generated::assert_generated;
use crate::regions::{
    CertificateState, LinkState, PeerState, PlacementCounts, RegionsStatus, SiblingState,
};

const INTRODUCTION: &str = "# Metrics

`GET /metrics` of the admin interface serves these metrics in the OpenMetrics text format. `pool` is the pool's model,
`replica` is `ip:port`, `region` is the name of a region. Metrics of replicas, peers and siblings have no sample while
their value is unknown. The filter's own counters (`isotherm_filter_*`) are among Envoy's statistics.

This page is generated from the service's metrics registry: `UPDATE_DOCS=1 cargo test -p isotherm-ext-proc --lib`.

| name | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
";

#[test]
fn the_metrics_reference_is_generated_from_the_registry() {
    let mut registry = Registry::with_prefix(PREFIX);
    let metrics = Metrics::register(&mut registry);
    metrics.count_request(RequestResult::Routed);
    metrics.count_bad_header("x-isotherm-tokens");
    drop(metrics.pool("llama"));
    registry.register_collector(Box::new(Sample::Pool));
    registry.register_collector(Box::new(Sample::Region));
    let probes = ProbeMetrics::register(&mut registry).pool(&Arc::from("llama"));
    probes.observe(Duration::ZERO, None);
    let mut page = String::new();
    text::encode(&mut page, &registry).unwrap();
    assert_generated("docs/metrics.md", &format!("{INTRODUCTION}{}", rows(&page)));
}

/// Formats each family of an OpenMetrics page as a row of a Markdown table.
fn rows(page: &str) -> String {
    let mut rows = String::new();
    for family in page.split("# HELP ").skip(1) {
        let (name, rest) = family.split_once(' ').unwrap();
        let (help, rest) = rest.split_once('\n').unwrap();
        let lines = || rest.lines();
        let described = |what: &str| {
            let start = format!("# {what} {name} ");
            lines().find_map(|line| line.strip_prefix(&start))
        };
        let kind = described("TYPE").unwrap();
        let total = if kind == "counter" { "_total" } else { "" };
        let sample = lines().find(|line| line.starts_with(name));
        let labels = sample.unwrap_or_else(|| panic!("no sample of {name}"));
        let labels = labels
            .split_once('{')
            .and_then(|(_, rest)| rest.split_once('}'));
        let labels: Vec<_> = labels
            .into_iter()
            .flat_map(|(labels, _)| labels.split(','))
            .filter_map(|label| Some(format!("`{}`", label.split_once('=')?.0)))
            .filter(|label| label != "`le`")
            .collect();
        let (unit, labels) = (described("UNIT").unwrap_or_default(), labels.join(", "));
        let help = help.trim_end_matches('.');
        writeln!(
            rows,
            "| `{name}{total}` | {kind} | {unit} | {labels} | {help}. |"
        )
        .unwrap();
    }
    rows
}

/// Collects a pool with a replica and a peer, or a region with a peer and a sibling.
#[derive(Debug)]
enum Sample {
    Pool,
    Region,
}

impl Collector for Sample {
    fn encode(&self, encoder: DescriptorEncoder) -> std::fmt::Result {
        match self {
            Self::Pool => pools::encode(encoder, &[pool()]),
            Self::Region => regions::encode(encoder, Some(&region())),
        }
    }
}

fn pool() -> PoolSnapshot {
    let load = Load {
        pending: 0,
        running: Some(1),
        kv_usage: Some(0.5),
        kv_capacity_tokens: None,
    };
    let report = PeerReport {
        available: 1,
        replicas: 1,
        free_capacity: 1,
        queue: 0,
        drain_per_s: 1.0,
    };
    PoolSnapshot {
        pool: "llama".into(),
        stats: Stats {
            counters: Counters {
                decisions: [(Reason::Prefix, 1)].into(),
                rejects: [(RejectReason::QueueFull, 1)].into(),
                ..Counters::default()
            },
            ..Stats::default()
        },
        replicas: vec![ReplicaStatus {
            id: ReplicaId(0),
            name: "10.0.0.1:8000".into(),
            outstanding: 1,
            load: Some(load),
            probed: Some(Time::ZERO),
            headroom: None,
            capacity: None,
            prefix_bytes: 0,
            availability: Availability::Available,
            draining: false,
        }],
        peers: vec![PeerStatus {
            id: PeerId(0),
            name: "eu".into(),
            availability: PeerAvailability::Available,
            report: Some(report),
            as_of: None,
            round_trip: None,
            forwarded_since: 0,
            outstanding: 0,
            prefix_bytes: 0,
            forwarded: 0,
            returned: 0,
        }],
        adopted: Vec::new(),
        now: Time::ZERO,
    }
}

fn region() -> RegionsStatus {
    RegionsStatus {
        name: "us".into(),
        has_gateway: true,
        successors: Vec::new(),
        peers: vec![PeerState {
            name: "eu".into(),
            address: "eu.example:9004".into(),
            cluster: "region-eu".into(),
            link: LinkState::Up,
            state: RegionState::Up,
            round_trip_ms: Some(0.0),
            heartbeat_age_ms: Some(0),
            version: None,
            replicas: 1,
            adopted: 0,
            adopted_by: Vec::new(),
            adoption_blocker: None,
        }],
        siblings: vec![SiblingState {
            address: "10.0.0.2:9004".into(),
            link: LinkState::Up,
            round_trip_ms: None,
            heartbeat_age_ms: Some(0),
            queue: 0,
        }],
        counters: RegionsCounters::default(),
        placements: PlacementCounts::default(),
        certificate: CertificateState {
            expires: Some(UNIX_EPOCH),
            ..CertificateState::default()
        },
        handshakes_rejected: 0,
    }
}
