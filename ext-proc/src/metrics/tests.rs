//! `docs/metrics.md`: the registry's own page, encoded with one sample of everything, as a table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use isotherm_batch::store::Store;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_planner::{Forecast, ForecastModel, PoolPlan};
use isotherm_regions::LeaseCounters;
use isotherm_router::{Load, PeerReport};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;

use super::{
    BatchMetrics, Metrics, PREFIX, PoolCollector, ProbeMetrics, ProcessCollector, ReloadMetrics,
    RequestResult, regions, scaling,
};
use crate::clock::Clock;
use crate::config;
use crate::generated::assert_generated;
use crate::pool::{PoolDecision, PoolRegistry, RouteRequest, Submission};
use crate::probe::ReportedAdapters;
use crate::regions::{
    LeaseState, LinkState, PeerSource, PeerState, RegionState, RegionsCounters, RegionsStatus,
    SiblingState,
};
use crate::scaling::{PoolScalingStatus, ScalingStatus};

const INTRODUCTION: &str = "# Metrics

`GET /metrics` of the admin interface serves these metrics in the OpenMetrics text format. `pool` is the pool's model,
`replica` is `ip:port`, `region` is the name of a region. Metrics of replicas, peers and siblings have no sample while
their value is unknown. The label `tenant` has at most a thousand values at a time, and others as tenants come and go: a server that stores the
metrics keeps a series for each tenant that there ever was. Drop the label there where clients choose their tenants. The filter's own counters (`isotherm_filter_*`) are among Envoy's statistics.

The share of requests within an objective is exact where the objective is a bound of the histogram: 0.25, 0.5, 1, 2, 5, 10 and 30 s are, written
`le=\"10.0\"`. Arrival is where the service reads the request; with the filter, its whole prompt has then arrived.

This page is generated from the service's metrics registry: `UPDATE_DOCS=1 cargo test -p isotherm-ext-proc --lib`.

| name | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
";

const BATCH: &str = "
## Batch work

`isotherm batch serve` and `isotherm batch work` have the metrics of their process above and these ([where](batch.md#watch)). The numbers of the
queue are absent while the database does not answer. They are the same in all workers of a database: take their maximum, and the sum of the others.

| name | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
";

const NAMES_ELSEWHERE: &str = "
## Names elsewhere

`deploy/helm/isotherm/monitoring/aliases.yaml` has recording rules that add the names of the columns OpenTelemetry and llm-d; the chart installs
them with `monitoring.aliases`. `pool` becomes `gen_ai_request_model`, `model_name`, or `name` of a pool. vLLM's names are those of an engine, and no
rule takes them.

| Isotherm | OpenTelemetry | llm-d (`llm_d_epp_`) | vLLM (`vllm:`) |
| --- | --- | --- | --- |
| `isotherm_request_duration_seconds` | `gen_ai.server.request.duration` | `request_duration_seconds` | `e2e_request_latency_seconds` |
| `isotherm_request_ttft_seconds` | `gen_ai.server.time_to_first_token` | `request_ttft_seconds` | `time_to_first_token_seconds` |
| `isotherm_time_per_output_token_seconds` | `gen_ai.server.time_per_output_token` | `request_streaming_tpot_seconds` | `request_time_per_output_token_seconds` |
| `isotherm_arrived_total` | | `request_total` | |
| `isotherm_queue_length` | | `flow_control_queue_size` | |
| `isotherm_replica_available` | | `ready_endpoints` | |
| `isotherm_replica_pending` | | `average_queue_size` | `num_requests_waiting` |
| `isotherm_replica_running` | | `average_running_requests` | `num_requests_running` |
| `isotherm_replica_kv_usage` | | `average_kv_cache_utilization` | `kv_cache_usage_perc` |
| `isotherm_output_tokens_total` | | | `generation_tokens_total` |
| `isotherm_measured_cached_tokens_total` | | | `prompt_tokens_cached_total` |
";

#[tokio::test]
async fn the_metrics_reference_is_generated_from_the_registry() {
    let mut root = Registry::default();
    root.register_collector(Box::new(ProcessCollector));
    let registry = root.sub_registry_with_prefix(PREFIX);
    let metrics = Arc::new(Metrics::register(registry));
    metrics.count_request(RequestResult::Routed);
    metrics.count_bad_header("x-isotherm-tokens");
    drop(ReloadMetrics::register(registry));
    let pools = pools(Arc::clone(&metrics));
    registry.register_collector(Box::new(PoolCollector(pools)));
    registry.register_collector(Box::new(SampleRegion));
    registry.register_collector(Box::new(SamplePlan));
    let probes = ProbeMetrics::register(registry).pool(&Arc::from("llama"));
    probes.observe(Duration::ZERO, None);
    let mut page = String::new();
    text::encode(&mut page, &root).unwrap();
    let batch = batch_page().await;
    let (_, batch) = batch.split_once("# HELP isotherm_").unwrap(); // behind those of the process
    let batch = format!("# HELP isotherm_{batch}");
    assert_generated(
        "docs/metrics.md",
        &format!(
            "{INTRODUCTION}{}{BATCH}{}{NAMES_ELSEWHERE}",
            rows(&page),
            rows(&batch)
        ),
    );
}

#[tokio::test]
async fn the_values_of_labels_are_escaped() {
    let mut registry = Registry::with_prefix(PREFIX);
    let metrics = Arc::new(Metrics::register(&mut registry));
    let config = config::parse(r#"pools: [{ model: 'a"b\c' }]"#).unwrap();
    let pools = Arc::new(PoolRegistry::new(&config, metrics, Clock::start()));
    registry.register_collector(Box::new(PoolCollector(pools)));
    let probes = ProbeMetrics::register(&mut registry).pool(&Arc::from(r#"a"b\c"#));
    probes.observe(Duration::ZERO, None);
    let mut page = String::new();
    text::encode(&mut page, &registry).unwrap();
    let named: Vec<_> = page.lines().filter(|line| line.contains("pool=")).collect();
    assert!(named.len() > 50, "{page}");
    for line in named {
        assert!(line.contains(r#"pool="a\"b\\c""#), "{line}");
    }
}

/// The page of a worker of an empty queue.
async fn batch_page() -> String {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("queue.db");
    let store = Store::open(database.to_str().unwrap()).await.unwrap();
    let metrics = BatchMetrics::new(store, Arc::default());
    metrics.page().await.unwrap()
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
        let end = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
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
            "| `{name}{end}` | {kind} | {unit} | {labels} | {help}. |"
        )
        .unwrap();
    }
    rows
}

/// A pool with a replica, a peer, a dispatched request and a rejected one.
fn pools(metrics: Arc<Metrics>) -> Arc<PoolRegistry> {
    let config = config::parse(
        "{ pools: [{ model: llama, tiers: {} }], region: { name: us, listen: '127.0.0.1:9004', \
         peers: [{ name: eu, address: 'localhost:9004' }] } }",
    );
    let pools = PoolRegistry::new(&config.unwrap(), metrics, Clock::start());
    let pool = pools.pool_for("llama").unwrap();
    let replica = pool.add_replica(([10, 0, 0, 1], 8000).into()).unwrap();
    let load = Load {
        pending: 0,
        running: Some(1),
        kv_usage: Some(0.5),
        kv_capacity_tokens: None,
    };
    let now = pool.clock().now();
    pool.adapters_listed(replica, vec!["sql".into()]);
    let adapters = ReportedAdapters {
        slots: Some(4),
        running: vec!["sql".into()],
        waiting: Vec::new(),
    };
    pool.adapters_reported(replica, &adapters, now);
    pool.probed(replica, load, now);
    let peer = pool.peer_table().unwrap().named("eu").unwrap().id;
    pool.peer_reported(peer, PeerReport::default(), now, Duration::ZERO);
    for subset in [None, Some(Vec::new())] {
        let request = RouteRequest {
            subset,
            tenant: Some("team-a".into()),
            ..RouteRequest::default()
        };
        let (mut guard, submission) = pool.submit(&request);
        if let Submission::Decided(PoolDecision::Dispatch(route)) = submission {
            guard.dispatch(&route);
            guard.finish(&Outcome {
                status: 200,
                ttft_us: Some(1_000),
                is_stream: true,
                ..Outcome::default()
            });
        }
    }
    Arc::new(pools)
}

/// Collects a region with a peer and a sibling.
#[derive(Debug)]
struct SampleRegion;

impl Collector for SampleRegion {
    fn encode(&self, encoder: DescriptorEncoder) -> std::fmt::Result {
        regions::encode(encoder, Some(&region()))
    }
}

#[derive(Debug)]
struct SamplePlan;

impl Collector for SamplePlan {
    fn encode(&self, encoder: DescriptorEncoder) -> std::fmt::Result {
        let plan = PoolPlan {
            epoch: 1,
            target: Some(2),
            demand_replicas: Some(1.0),
            forecasts: BTreeMap::from([(ForecastModel::Max, Forecast::default())]),
            forecast_error: Some(1.0),
            ..PoolPlan::default()
        };
        let pool = PoolScalingStatus {
            plan,
            ..PoolScalingStatus::default()
        };
        let status = ScalingStatus {
            pools: BTreeMap::from([("llama".to_owned(), pool)]),
            ..ScalingStatus::default()
        };
        scaling::encode(encoder, &status)
    }
}

fn region() -> RegionsStatus {
    RegionsStatus {
        name: "us".into(),
        has_gateway: true,
        lease: Some(LeaseState {
            holder: Some("us".into()),
            revision: 3,
            store_age_ms: Some(20),
        }),
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
            leased: 0,
            source: PeerSource::Configuration,
            lease: None,
        }],
        siblings: vec![SiblingState {
            address: "10.0.0.2:9004".into(),
            link: LinkState::Up,
            round_trip_ms: None,
            heartbeat_age_ms: Some(0),
            queue: 0,
        }],
        counters: RegionsCounters::default(),
        lease_counters: LeaseCounters::default(),
        certificate_expires: Some(UNIX_EPOCH),
    }
}
