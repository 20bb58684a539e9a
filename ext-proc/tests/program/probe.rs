//! Probes against fake engines: good, slow, broken, dead and changing ones.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::authority::Authority;
use crate::fake::tls_engine::TlsEngine;
use crate::fake::{FakeEngine, FakeResponse, vllm, vllm_with_adapters, wait_until};
use isotherm_ext_proc::clock::Clock;
use isotherm_ext_proc::config;
use isotherm_ext_proc::metrics::{Metrics, ProbeMetrics};
use isotherm_ext_proc::pool::{Pool, PoolRegistry, RouteRequest};
use isotherm_ext_proc::probe;
use isotherm_router::{Availability, Load, ReplicaStatus};
use prometheus_client::registry::Registry;

struct ProbedReplica {
    pool_registry: PoolRegistry,
    registry: Registry,
}

impl ProbedReplica {
    fn start(options: &str) -> Self {
        let config = config::parse(&format!("pools: [{{{options}}}]")).unwrap();
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&mut registry));
        let pool_registry = PoolRegistry::new(&config, metrics, Clock::start());
        // The task ends with the pool_registry.
        drop(probe::spawn(&pool_registry, ProbeMetrics::register(&mut registry)).unwrap());
        Self {
            pool_registry,
            registry,
        }
    }

    fn pool(&self) -> Arc<Pool> {
        self.pool_registry.pool_for("any").unwrap()
    }

    fn status(&self, addr: SocketAddr) -> ReplicaStatus {
        let name = addr.to_string();
        self.pool()
            .replicas()
            .into_iter()
            .find(|replica| replica.name == name)
            .unwrap()
    }

    fn availability(&self, addr: SocketAddr) -> Availability {
        self.status(addr).availability
    }

    fn page(&self) -> String {
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &self.registry).unwrap();
        page
    }
}

const FAST: &str = "probe: {interval_ms: 20, timeout_ms: 200}";

#[tokio::test]
async fn a_replica_gets_requests_after_its_first_good_probe() {
    let engine = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(engine.addr).unwrap();
    assert_eq!(probed.availability(engine.addr), Availability::NeverProbed);
    wait_until("the replica is available", || {
        probed.availability(engine.addr) == Availability::Available
    })
    .await;
    let load = Load {
        pending: 0,
        running: Some(2),
        kv_usage: Some(0.5),
        kv_capacity_tokens: Some(1_600),
    };
    assert_eq!(probed.status(engine.addr).load, Some(load));
}

#[tokio::test]
async fn a_hanging_replica_does_not_delay_the_news_of_another() {
    let (good, hanging) = (
        FakeEngine::start(vllm(0)).await,
        FakeEngine::start(FakeResponse::Hang).await,
    );
    let probed = ProbedReplica::start("probe: {interval_ms: 20, timeout_ms: 5000}");
    probed.pool().add_replica(hanging.addr).unwrap();
    probed.pool().add_replica(good.addr).unwrap();
    let start = Instant::now();
    wait_until("ten probes of the good one", || good.request_count() >= 10).await;
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(hanging.request_count(), 1);
    assert_eq!(probed.availability(hanging.addr), Availability::NeverProbed);
}

#[tokio::test]
async fn a_replica_that_fails_is_left_out_until_it_answers_again() {
    let engine = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(engine.addr).unwrap();
    for bad in [FakeResponse::Status(503), FakeResponse::Hang] {
        wait_until("available", || {
            probed.availability(engine.addr) == Availability::Available
        })
        .await;
        engine.set_response(bad.clone());
        wait_until("left out", || {
            probed.availability(engine.addr) == Availability::ProbeFailed
        })
        .await;
        engine.set_response(vllm(0));
    }
    wait_until("available", || {
        probed.availability(engine.addr) == Availability::Available
    })
    .await;
    let page = probed.page();
    for reason in ["status", "timeout"] {
        let line = format!("probe_failures_total{{pool=\"*\",reason=\"{reason}\"}}");
        assert!(!page.contains(&format!("{line} 0\n")), "{page}");
        assert!(page.contains(&line), "missing {line} in\n{page}");
    }
    assert!(
        page.contains("probe_duration_seconds_count{pool=\"*\"}"),
        "{page}"
    );
}

#[tokio::test]
async fn the_probes_of_an_idle_replica_rest_until_it_gets_a_request() {
    let idle = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n".to_owned();
    let idle = FakeEngine::start(FakeResponse::Page("/metrics", idle)).await;
    let busy = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(FAST);
    let pool = probed.pool();
    pool.add_replica(busy.addr).unwrap();
    wait_until("probes", || busy.count_of("/metrics") >= 2).await;
    pool.add_replica(idle.addr).unwrap();
    let before = busy.count_of("/metrics");
    wait_until("probes", || busy.count_of("/metrics") >= before + 40).await;
    let rested = idle.count_of("/metrics");
    assert!((1..20).contains(&rested), "{rested} probes");

    pool.drain_replica(busy.addr).unwrap();
    let (request, _) = pool.submit(&RouteRequest::default());
    let before = busy.count_of("/metrics");
    wait_until("probes", || busy.count_of("/metrics") >= before + 40).await;
    let probes = idle.count_of("/metrics") - rested;
    assert!(probes >= 20, "{probes} probes");
    drop(request);
}

#[tokio::test]
async fn what_waits_at_a_replica_is_seen() {
    let engine = FakeEngine::start(vllm(3)).await;
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("pending", || {
        probed.availability(engine.addr) == Availability::Pending
    })
    .await;
    engine.set_response(vllm(0));
    wait_until("available", || {
        probed.availability(engine.addr) == Availability::Available
    })
    .await;
}

#[tokio::test]
async fn engines_are_recognised_also_at_their_other_path_and_after_a_change() {
    let page = "trtllm_num_requests_waiting 1\ntrtllm_num_requests_running 2\n";
    let engine = FakeEngine::start(FakeResponse::PageAmongJson(
        "/prometheus/metrics",
        page.into(),
    ))
    .await;
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("one waits", || {
        probed
            .status(engine.addr)
            .load
            .is_some_and(|load| load.pending == 1)
    })
    .await;
    for (path, waiting) in [("/metrics", 7), ("/prometheus/metrics", 8)] {
        engine.set_response(FakeResponse::Page(
            path,
            format!("tgi_queue_size {waiting}\n"),
        ));
        wait_until("another engine has taken the address over", || {
            let status = probed.status(engine.addr);
            status.load.is_some_and(|load| load.pending == waiting)
        })
        .await;
    }
}

/// Waits until the replica is available without metrics, and stays so through further probes.
async fn serves_without_metrics(probed: &ProbedReplica, engine: &FakeEngine, case: &str) {
    let addr = engine.addr;
    wait_until(case, || {
        probed.availability(addr) == Availability::Available
    })
    .await;
    let status = probed.status(addr);
    assert_eq!((status.has_metrics, status.load), (false, None), "{case}");
    let answered = engine.request_count();
    wait_until(case, || engine.request_count() > answered + 2).await;
    assert_eq!(probed.availability(addr), Availability::Available, "{case}");
}

#[tokio::test]
async fn an_engine_that_answers_without_a_usable_number_gets_requests() {
    let pages = [
        "",
        "python_info 1\n",
        "# HELP vllm:num_requests_waiting n\n# TYPE vllm:num_requests_waiting gauge\n",
        "vllm:num_requests_waiting NaN\n",
        "vllm:num_requests_waiting -1\n",
        "vllm:num_requests_running 1\n",
        "sglang:num_running_reqs 1\n",
    ];
    let pages = pages.map(|page| FakeResponse::Page("/metrics", page.into()));
    let statuses = [204, 307, 400, 401, 404, 429, 500, 501].map(FakeResponse::Status);
    let unread = [FakeResponse::Endless, FakeResponse::Unfinished];
    let responses = Vec::from_iter(pages.into_iter().chain(statuses).chain(unread));
    for engine in [
        "auto", "vllm", "sglang", "trtllm", "triton", "llamacpp", "tgi",
    ] {
        let probed = ProbedReplica::start(&format!("engine: {engine}, {FAST}"));
        let cases = responses.iter().map(async |response| {
            let fake = FakeEngine::start(response.clone()).await;
            probed.pool().add_replica(fake.addr).unwrap();
            serves_without_metrics(&probed, &fake, &format!("{engine}: {response:?}")).await;
        });
        futures_util::future::join_all(cases).await;
    }
}

#[tokio::test]
async fn an_engine_without_metrics_gets_no_request_when_it_is_down() {
    for response in [
        FakeResponse::Status(404),
        FakeResponse::Page("/metrics", "python_info 1\n".into()),
    ] {
        let engine = FakeEngine::start(response).await;
        let probed = ProbedReplica::start(FAST);
        probed.pool().add_replica(engine.addr).unwrap();
        serves_without_metrics(&probed, &engine, "served").await;
        let addr = engine.addr;
        drop(engine);
        wait_until("left out", || {
            probed.availability(addr) == Availability::ProbeFailed
        })
        .await;
    }
}

#[tokio::test]
async fn an_engine_of_another_kind_than_the_configured_one_gets_requests() {
    let engine = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(&format!("engine: sglang, {FAST}"));
    probed.pool().add_replica(engine.addr).unwrap();
    serves_without_metrics(&probed, &engine, "served").await;
}

#[tokio::test]
async fn an_engine_that_sleeps_gets_no_request_until_it_is_awake() {
    let FakeResponse::Page(path, page) = vllm(0) else {
        unreachable!("it is one page");
    };
    let asleep = "vllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} 0\n";
    let engine = FakeEngine::start(FakeResponse::Page(path, page + asleep)).await;
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("left out", || {
        probed.availability(engine.addr) == Availability::ProbeFailed
    })
    .await;
    engine.set_response(vllm(0));
    wait_until("available", || {
        probed.availability(engine.addr) == Availability::Available
    })
    .await;
}

#[tokio::test]
async fn an_engine_whose_page_is_late_gets_requests_until_it_hangs() {
    let FakeResponse::Page(path, page) = vllm(0) else {
        unreachable!("it is one page");
    };
    let late = FakeResponse::Slow(Duration::from_millis(300), path, page);
    for options in [FAST, &format!("engine: vllm, {FAST}")] {
        let engine = FakeEngine::start(late.clone()).await;
        let probed = ProbedReplica::start(options);
        probed.pool().add_replica(engine.addr).unwrap();
        serves_without_metrics(&probed, &engine, "served").await;
        engine.set_response(FakeResponse::Hang);
        wait_until("left out", || {
            probed.availability(engine.addr) == Availability::ProbeFailed
        })
        .await;
        engine.set_response(vllm(0));
        wait_until("its load is known", || {
            probed.status(engine.addr).load.is_some()
        })
        .await;
    }
}

#[tokio::test]
async fn a_replica_that_refuses_connections_gets_no_request() {
    let engine = FakeEngine::start(FakeResponse::Status(404)).await;
    let addr = engine.addr;
    drop(engine);
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(addr).unwrap();
    wait_until("left out", || {
        probed.availability(addr) == Availability::ProbeFailed
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_leaves_is_asked_no_more_and_a_pools_figures_go_with_it() {
    let engine = FakeEngine::start(FakeResponse::Status(500)).await;
    let probed = ProbedReplica::start(FAST);
    let pool = probed.pool();
    pool.add_replica(engine.addr).unwrap();
    wait_until("some probes", || engine.request_count() >= 3).await;
    pool.remove_replica(engine.addr).unwrap();
    // One may have been on its way.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let requests = engine.request_count();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(engine.request_count(), requests);
    assert!(probed.page().contains("pool=\"*\""), "{}", probed.page());
    drop(pool);
    let other = config::parse("pools: [{model: other}]").unwrap();
    probed.pool_registry.apply(&other);
    wait_until("no figures", || !probed.page().contains("pool=\"*\"")).await;
}

#[tokio::test]
async fn a_reload_changes_how_replicas_are_probed() {
    let engine = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start("probe: {interval_ms: 60000}");
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("the first probe", || engine.count_of("/metrics") == 1).await;
    let config = config::parse(&format!("pools: [{{{FAST}}}]")).unwrap();
    probed.pool_registry.apply(&config);
    wait_until("many probes", || engine.count_of("/metrics") > 5).await;
}

#[tokio::test]
async fn the_adapters_of_a_replica_are_known_before_its_first_load() {
    let engine = FakeEngine::start(vllm_with_adapters(&["sql", "chat"], "sql")).await;
    let probed = ProbedReplica::start(FAST);
    let pool = probed.pool();
    pool.add_replica(engine.addr).unwrap();
    wait_until("available", || {
        probed.availability(engine.addr) == Availability::Available
    })
    .await;
    let text = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let adapters = probed.status(engine.addr).adapters.unwrap();
    let names = pool.adapter_names(&adapters);
    assert_eq!(text(&names.listed.unwrap()), ["chat", "sql"]);
    assert_eq!(text(&names.loaded), ["sql"]);
    assert_eq!(names.slots, Some(1));
    assert_eq!(text(&pool.adapters()), ["chat", "sql"]);

    engine.set_response(vllm_with_adapters(&["sql", "chat"], "chat"));
    wait_until("another adapter", || {
        let adapters = probed.status(engine.addr).adapters.unwrap();
        text(&pool.adapter_names(&adapters).loaded) == ["chat"]
    })
    .await;
    pool.remove_replica(engine.addr).unwrap();
    assert_eq!(pool.adapters().len(), 0);
}

/// An engine whose list of models has these members in the entry of its model.
fn vllm_with_card(card: &str) -> FakeResponse {
    let FakeResponse::Page(path, page) = vllm(0) else {
        unreachable!("it is one page");
    };
    let models = format!(r#"{{"object":"list","data":[{{"id":"m",{card}}}]}}"#);
    FakeResponse::Pages(vec![(path, page), ("/v1/models", models)])
}

#[tokio::test]
async fn what_all_engines_say_of_their_model_is_known_of_the_pool() {
    let cards = [
        r#""root":"one","max_model_len":8192,"permission":[{"id":"x"}]"#,
        r#""root":"other","max_model_len":8192,"permission":[{"id":"y"}]"#,
    ];
    let probed = ProbedReplica::start(FAST);
    let pool = probed.pool();
    assert!(pool.model_card().is_empty());
    let mut engines = Vec::new();
    for card in cards {
        let engine = FakeEngine::start(vllm_with_card(card)).await;
        pool.add_replica(engine.addr).unwrap();
        wait_until("available", || {
            probed.availability(engine.addr) == Availability::Available
        })
        .await;
        engines.push(engine);
    }
    let card = serde_json::Value::Object(pool.model_card());
    assert_eq!(card, serde_json::json!({ "max_model_len": 8192 }));
    pool.remove_replica(engines[1].addr).unwrap();
    let card = serde_json::Value::Object(pool.model_card());
    let one = serde_json::json!({ "root": "one", "max_model_len": 8192 });
    assert_eq!(card, one);
}

#[tokio::test]
async fn an_engine_without_a_list_of_models_is_asked_for_it_seldom() {
    let engine = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(FAST);
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("some probes", || engine.request_count() >= 10).await;
    assert_eq!(probed.status(engine.addr).adapters, None);
    assert_eq!(engine.count_of("/v1/models"), 1);
}

/// Options of a pool whose probes use TLS and a token. The folder has the authority and the token.
fn with_tls(folder: &tempfile::TempDir, more: &str) -> String {
    format!(
        "probe: {{interval_ms: 20, timeout_ms: 2000, token_file: {0}/token, \
         ca: {0}/ca.pem{more}}}",
        folder.path().display()
    )
}

fn folder_with(ca: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), ca).unwrap();
    std::fs::write(folder.path().join("token"), "first\n").unwrap();
    folder
}

async fn tls_engine(authority: &Authority, name: &str) -> TlsEngine {
    let issued = authority.issue(name);
    TlsEngine::start(&issued.certificate, &issued.key).await
}

#[tokio::test]
async fn a_replica_with_tls_is_probed_with_the_token_of_the_file() {
    let authority = Authority::new();
    let folder = folder_with(&authority.pem);
    for (name, more) in [
        ("127.0.0.1", ""),
        ("vllm.example", ", server_name: vllm.example"),
    ] {
        let engine = tls_engine(&authority, name).await;
        let probed = ProbedReplica::start(&with_tls(&folder, more));
        probed.pool().add_replica(engine.addr).unwrap();
        wait_until("available", || {
            probed.availability(engine.addr) == Availability::Available
        })
        .await;
        let all = engine.authorizations();
        assert!(all.iter().all(|given| given == "Bearer first"), "{all:?}");
    }
}

#[tokio::test]
async fn an_impostor_at_a_replicas_address_gets_no_token_and_no_request() {
    let (authority, other) = (Authority::new(), Authority::named("another authority"));
    let folder = folder_with(&authority.pem);
    let impostors = [
        tls_engine(&other, "127.0.0.1").await,
        tls_engine(&authority, "other.example").await,
    ];
    let in_clear = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(&with_tls(&folder, ""));
    let addresses = impostors.iter().map(|impostor| impostor.addr);
    for addr in addresses.chain([in_clear.addr]) {
        probed.pool().add_replica(addr).unwrap();
        wait_until("left out", || {
            probed.availability(addr) == Availability::ProbeFailed
        })
        .await;
    }
    assert!(impostors.iter().all(|one| one.authorizations().is_empty()));
    assert_eq!(in_clear.request_count(), 0);
}

#[tokio::test]
async fn probes_use_a_changed_authority_and_a_changed_token_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::named("the next authority"));
    let folder = folder_with(&old.pem);
    let engine = tls_engine(&new, "127.0.0.1").await;
    let probed = ProbedReplica::start(&with_tls(&folder, ""));
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("left out", || {
        probed.availability(engine.addr) == Availability::ProbeFailed
    })
    .await;
    // A file in which no authority is leaves the old one in use.
    std::fs::write(folder.path().join("ca.pem"), "nonsense").unwrap();
    std::fs::write(folder.path().join("token"), "second").unwrap();
    std::fs::write(folder.path().join("ca.pem"), &new.pem).unwrap();
    wait_until("available", || {
        probed.availability(engine.addr) == Availability::Available
    })
    .await;
    let is_second = |given: &String| given == "Bearer second";
    wait_until("the second token", || {
        engine.authorizations().last().is_some_and(is_second)
    })
    .await;
}

#[tokio::test]
async fn files_that_cannot_be_read_leave_no_probe_in_clear() {
    let folder = tempfile::tempdir().unwrap();
    let engine = FakeEngine::start(vllm(0)).await;
    let probed = ProbedReplica::start(&with_tls(&folder, ""));
    probed.pool().add_replica(engine.addr).unwrap();
    wait_until("left out", || {
        probed.availability(engine.addr) == Availability::ProbeFailed
    })
    .await;
    assert_eq!(engine.request_count(), 0);
}
