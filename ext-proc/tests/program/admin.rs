//! The admin interface, as programs and people use it.

use std::time::Duration;

use crate::fake::service::{Service, TOKEN};
use crate::fake::{FakeEngine, vllm, wait_until};
use isotherm_ext_proc::pool::{PoolDecision, ReplicaLease, RouteRequest, Submission};
use isotherm_fingerprint::outcome::Outcome;
use isotherm_fingerprint::session::SessionSecret;
use isotherm_router::PeerReport;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const WITH_TOKEN: &str = "
admin: { token_file: token }
pools: [{ model: llama, probe: { interval_ms: 20, timeout_ms: 20000 } }]
";

fn message(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn replicas_come_drain_and_go_at_run_time() {
    let engine = FakeEngine::start(vllm(0)).await;
    let service = Service::start(WITH_TOKEN).await;
    let new = json!({"pool": "llama", "address": engine.addr.to_string()}).to_string();
    let (status, body) = service
        .request("POST", "/api/replicas", Some(TOKEN), &new)
        .await;
    assert_eq!(status, 201, "{body}");
    wait_until("probed", || {
        service.pool_registry.pools()[0].replicas()[0]
            .load
            .is_some()
    })
    .await;
    let (status, body) = service
        .request("GET", "/api/replicas?pool=llama", None, "")
        .await;
    assert_eq!(status, 200);
    assert_eq!(body[0]["address"], engine.addr.to_string());
    assert_eq!(body[0]["availability"], "available");
    assert_eq!(
        (&body[0]["running"], &body[0]["kv_capacity_tokens"]),
        (&json!(2), &json!(1600))
    );

    let (status, body) = service
        .request("POST", "/api/replicas", Some(TOKEN), &new)
        .await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (409, Some("replica_exists"))
    );

    let drain = format!("/api/replicas/{}/drain?pool=llama", engine.addr);
    let (status, _) = service.request("POST", &drain, Some(TOKEN), "").await;
    assert_eq!(status, 204);
    let (_, body) = service.request("GET", "/api/replicas", None, "").await;
    assert_eq!(
        (&body[0]["draining"], &body[0]["availability"]),
        (&json!(true), &json!("draining"))
    );

    let remove = format!("/api/replicas/{}", engine.addr);
    let (status, _) = service.request("DELETE", &remove, Some(TOKEN), "").await;
    assert_eq!(status, 204);
    let (status, body) = service.request("DELETE", &remove, Some(TOKEN), "").await;
    assert_eq!(status, 404);
    assert!(message(&body).contains("isotherm replicas list"), "{body}");
    assert!(service.replica_addresses().is_empty());
}

#[tokio::test]
async fn changes_want_the_token_and_reading_does_not() {
    let service = Service::start(WITH_TOKEN).await;
    let new = r#"{"address": "127.0.0.1:1"}"#;
    for (method, path) in [
        ("POST", "/api/replicas"),
        ("DELETE", "/api/replicas/127.0.0.1:1"),
        ("POST", "/api/replicas/127.0.0.1:1/drain"),
        ("POST", "/api/reload"),
    ] {
        for token in [None, Some("wrong"), Some(""), Some("open-sesame-and-more")] {
            let (status, body) = service.request(method, path, token, new).await;
            assert_eq!(status, 401, "{method} {path} {token:?}: {body}");
            assert!(message(&body).contains("admin.token_file"), "{body}");
        }
    }
    assert!(service.replica_addresses().is_empty());
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/pools",
        "/api/replicas",
        "/api/batch",
        "/api/tenants",
        "/api/regions",
    ] {
        let (status, body) = service.request_text("GET", path, None, "").await;
        assert_eq!(status, 200, "{path}: {body}");
    }
}

#[tokio::test]
async fn beyond_loopback_reading_needs_the_token_too() {
    let service = Service::start("admin: { listen: '0.0.0.0:9003', token_file: token }").await;
    for path in ["/api/pools", "/api/replicas", "/api/regions"] {
        assert_eq!(service.request("GET", path, None, "").await.0, 401);
        assert_eq!(service.request("GET", path, Some(TOKEN), "").await.0, 200);
    }
    let explain = r#"{"path": "/v1/models"}"#;
    let explain = |token| service.request("POST", "/api/explain", token, explain);
    assert_eq!(explain(None).await.0, 401);
    assert_eq!(explain(Some(TOKEN)).await.0, 200);
    for path in ["/healthz", "/readyz", "/metrics"] {
        let (status, _) = service.request_text("GET", path, None, "").await;
        assert_eq!(status, 200, "{path}");
    }
}

#[tokio::test]
async fn without_a_configured_token_changes_are_refused_with_a_way_out() {
    let service = Service::start("{}").await;
    let (status, body) = service
        .request("POST", "/api/reload", Some("any"), "")
        .await;
    assert_eq!(
        (status, body["error"]["code"].as_str()),
        (403, Some("no_token_configured"))
    );
    assert!(message(&body).contains("`admin.token_file`"), "{body}");
}

#[tokio::test]
async fn a_new_token_counts_without_a_restart_and_an_empty_one_never() {
    let service = Service::start(WITH_TOKEN).await;
    std::fs::write(service.folder().join("token"), "another").unwrap();
    assert_eq!(
        service
            .request("POST", "/api/reload", Some(TOKEN), "")
            .await
            .0,
        401
    );
    assert_eq!(
        service
            .request("POST", "/api/reload", Some("another"), "")
            .await
            .0,
        200
    );
    std::fs::write(service.folder().join("token"), "\n").unwrap();
    for token in ["", "another"] {
        assert_eq!(
            service
                .request("POST", "/api/reload", Some(token), "")
                .await
                .0,
            500
        );
    }
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let service =
        Service::start("admin: { token_file: token }\npools: [{model: a}, {model: b}]").await;
    let post = |body: &'static str| service.request("POST", "/api/replicas", Some(TOKEN), body);
    let (status, body) = post(r#"{"address": "127.0.0.1:1"}"#).await;
    assert_eq!(status, 400);
    assert_eq!(message(&body), "name the pool: there are `a`, `b`");
    let (status, body) = post(r#"{"address": "127.0.0.1:1", "pool": "c"}"#).await;
    assert_eq!(
        (status, message(&body)),
        (404, "no pool `c`; there are `a`, `b`")
    );
    let (status, body) = post(r#"{"address": "engine:1", "pool": "a"}"#).await;
    assert_eq!(status, 400);
    assert!(message(&body).contains("not ip:port"), "{body}");
    let (status, body) = post(r#"{"adress": "127.0.0.1:1"}"#).await;
    assert_eq!(status, 422);
    assert!(message(&body).contains("unknown field `adress`"), "{body}");
    let (status, body) = service.request("GET", "/api/replica", None, "").await;
    assert_eq!(status, 404);
    assert!(message(&body).contains("/api/replicas"), "{body}");
    assert_eq!(service.request("PUT", "/api/pools", None, "").await.0, 405);
    let large = format!("{{\"address\": \"{}\"}}", "1".repeat(70_000));
    assert_eq!(
        service
            .request("POST", "/api/replicas", Some(TOKEN), &large)
            .await
            .0,
        413
    );
}

#[tokio::test]
async fn readiness_follows_the_service() {
    let service = Service::start("{}").await;
    assert_eq!(
        service.request("GET", "/readyz", None, "").await,
        (200, json!({"ready": true, "reason": null}))
    );
    service.serving.send_replace(false);
    let (status, body) = service.request("GET", "/readyz", None, "").await;
    assert_eq!((status, &body["ready"]), (503, &json!(false)));
    assert_eq!(service.request("GET", "/healthz", None, "").await.0, 200);
}

/// The region `us`, whose only peer `eu` listens on `eu` when it does.
fn region(own: u16, eu: u16) -> String {
    format!(
        "
admin: {{ token_file: token }}
pools: [{{ model: llama }}]
region:
  name: us
  listen: '127.0.0.1:{own}'
  peers: [{{ name: eu, address: '127.0.0.1:{eu}' }}]
"
    )
}

#[tokio::test]
async fn regions_are_shown_as_they_are_heard() {
    let [us, eu] = [free_port().await, free_port().await];
    let service = Service::start(&region(us, eu)).await;
    let seen = || async { service.request("GET", "/api/regions", None, "").await.1 };
    let is = |what: &'static str, value: &'static str| {
        let seen = &seen;
        async move {
            for _ in 0..1000 {
                if seen().await["peers"][0][what] == value {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            panic!("{what} never became {value}: {}", seen().await);
        }
    };
    is("link", "unreachable").await;
    let now = seen().await;
    assert_eq!(
        (&now["name"], &now["has_gateway"]),
        (&json!("us"), &json!(true))
    );
    let peer = &now["peers"][0];
    assert_eq!(peer["state"], "never_heard");
    assert_eq!(peer["cluster"], "region-eu");
    assert!(
        peer["link_error"]
            .as_str()
            .is_some_and(|error| !error.is_empty()),
        "{now}"
    );
    assert_eq!(peer["pools"][0]["availability"], "never_heard");

    let other = region(eu, us)
        .replace("name: us", "name: x")
        .replace("name: eu", "name: us")
        .replace("name: x", "name: eu");
    let _eu = Service::start(&other).await;
    is("state", "up").await;
    is("link", "up").await;
    wait_until("a report is in", || {
        let pool = &service.pool_registry.pools()[0];
        pool.peers()[0].report.is_some()
    })
    .await;
    let now = seen().await;
    let peer = &now["peers"][0];
    assert!(peer["round_trip_ms"].as_f64().is_some(), "{now}");
    assert!(peer["heartbeat_age_ms"].as_u64().is_some(), "{now}");
    assert_eq!(peer["pools"][0]["report"]["replicas"], 0);
    let (_, page) = service.request_text("GET", "/metrics", None, "").await;
    for line in [
        "isotherm_region_link_up{region=\"eu\",state=\"up\"} 1.0",
        "isotherm_region_state{region=\"eu\",state=\"up\"} 1.0",
        "isotherm_region_gateway{region=\"us\"} 1.0",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(
        page.contains("isotherm_region_round_trip_seconds{region=\"eu\"} "),
        "{page}"
    );
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_counted() {
    let authority = crate::authority::Authority::new();
    let files = authority.files("us");
    let isotherm_ext_proc::config::TlsFiles {
        certificate,
        key,
        ca,
    } = files.paths();
    let service = Service::start(&format!(
        "region:
  name: us
  listen: '127.0.0.1:0'
  tls: {{ certificate: {}, key: {}, ca: {} }}
  peers: [{{ name: eu, address: '127.0.0.1:1' }}]",
        certificate.display(),
        key.display(),
        ca.display()
    ))
    .await;
    let page_with = |line: &'static str| {
        let service = &service;
        async move {
            for _ in 0..1000 {
                let (_, page) = service.request_text("GET", "/metrics", None, "").await;
                if page.lines().any(|found| found == line) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            panic!("never on the page: {line}");
        }
    };
    page_with("isotherm_certificate_expires_seconds{region=\"us\"} 4102444800.0").await;
    std::fs::write(certificate, "no certificate").unwrap();
    page_with("isotherm_certificate_failures_total 1").await;
}

#[tokio::test]
async fn a_service_on_its_own_shows_no_regions() {
    let service = Service::start(WITH_TOKEN).await;
    let (status, seen) = service.request("GET", "/api/regions", None, "").await;
    assert_eq!((status, &seen["name"]), (200, &json!(null)));
    assert_eq!(seen["pools"][0]["pool"], "llama");
}

#[tokio::test]
async fn a_leased_replica_is_shown_with_its_region() {
    let service = Service::start(&region(0, 1)).await;
    let pool = &service.pool_registry.pools()[0];
    let eu = pool.peer_table().unwrap().named("eu").unwrap().id;
    let lease = ReplicaLease {
        owner: eu,
        revision: 1,
    };
    pool.lease_replica("127.0.0.1:1".parse().unwrap(), lease)
        .unwrap();
    let (_, replicas) = service.request("GET", "/api/replicas", None, "").await;
    assert_eq!(replicas[0]["owner"], "eu");
    let (_, seen) = service.request("GET", "/api/regions", None, "").await;
    assert_eq!(seen["peers"][0]["pools"][0]["leased"], 1);
    let (_, page) = service.request_text("GET", "/metrics", None, "").await;
    let line = "isotherm_leased_replicas{pool=\"llama\",region=\"eu\"} 1.0";
    assert!(page.contains(line), "{page}");
}

#[tokio::test]
async fn a_request_that_would_leave_is_explained_with_every_region() {
    let service = Service::start(&region(0, 1)).await;
    let pool = &service.pool_registry.pools()[0];
    let eu = pool.peer_table().unwrap().named("eu").unwrap().id;
    let ask = json!({"path": "/v1/chat/completions", "body": {"model": "llama", "messages": []}});
    let explain = || async {
        let (_, explained) = service
            .request("POST", "/api/explain", None, &ask.to_string())
            .await;
        explained
    };
    let explained = explain().await;
    assert_eq!(explained["regions"][0]["region"], "eu");
    assert_eq!(explained["regions"][0]["availability"], "never_heard");
    assert_ne!(explained["outcome"]["action"], "forward");
    let report = PeerReport {
        available: 1,
        replicas: 1,
        free_capacity: 1,
        queue: 0,
        drain_per_s: 1.0,
        ..PeerReport::default()
    };
    // What it said grows old within a moment.
    let mut explained = json!(null);
    for _ in 0..20 {
        let now = pool.clock().now();
        pool.peer_reported(eu, report, now, std::time::Duration::from_millis(80));
        explained = explain().await;
        if explained["outcome"]["action"] == "forward" {
            break;
        }
    }
    assert_eq!(explained["outcome"]["region"], "eu", "{explained}");
    assert_eq!(explained["regions"][0]["availability"], "available");
    assert!(explained["regions"][0]["estimated_ttft_ms"].as_u64() >= Some(80));
    assert_eq!(pool.stats().counters.forwarded, 0, "asking changes nothing");
}

/// A port without a listener a moment ago.
async fn free_port() -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn metrics_are_an_openmetrics_page() {
    let service = Service::start(WITH_TOKEN).await;
    let (status, page) = service.request_text("GET", "/metrics", None, "").await;
    assert_eq!(status, 200);
    assert!(
        page.contains("isotherm_queue_length{pool=\"llama\"} 0"),
        "{page}"
    );
    assert!(page.ends_with("# EOF\n"), "{page}");
}

#[tokio::test]
async fn a_request_is_explained_with_every_candidate() {
    let (one, two) = (
        FakeEngine::start(vllm(0)).await,
        FakeEngine::start(vllm(4)).await,
    );
    let service = Service::start(&format!(
        "pools:
  - model: llama
    probe: {{ interval_ms: 20, timeout_ms: 20000 }}
    replicas: {{ static: ['{}', '{}'] }}",
        one.addr, two.addr
    ))
    .await;
    wait_until("both probed", || {
        let replicas = service.pool_registry.pools()[0].replicas();
        replicas.len() == 2 && replicas.iter().all(|replica| replica.load.is_some())
    })
    .await;
    let prompt = "What is an isotherm? ".repeat(100);
    let body = json!({"model": "llama", "messages": [{"role": "user", "content": prompt}]});
    let ask = json!({
        "path": "/v1/chat/completions",
        "headers": {"X-Session-Id": "s 1"},
        "body": body.to_string(),
    });
    let (status, explained) = service
        .request("POST", "/api/explain", None, &ask.to_string())
        .await;
    assert_eq!(status, 200, "{explained}");
    assert_eq!(explained["pool"], "llama");
    assert_eq!(explained["request"]["model"], "llama");
    let session = SessionSecret::default().hash(b"s 1");
    assert_eq!(explained["request"]["session"], session);
    assert!(
        explained["request"]["prompt_bytes"].as_u64() > Some(2_000),
        "{explained}"
    );
    assert_eq!(explained["outcome"]["action"], "dispatch");
    assert_eq!(explained["outcome"]["replica"], one.addr.to_string());
    let candidates = explained["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 2);
    let busy = candidates
        .iter()
        .find(|c| c["replica"] == two.addr.to_string())
        .unwrap();
    assert_eq!(
        (&busy["availability"], &busy["pending"]),
        (&json!("pending"), &json!(4))
    );
    // Asking has changed nothing.
    assert_eq!(service.pool_registry.pools()[0].stats().counters.arrived, 0);

    let ask = json!({"path": "/v1/chat/completions", "body": {"model": "gpt"}});
    let (_, explained) = service
        .request("POST", "/api/explain", None, &ask.to_string())
        .await;
    assert_eq!(
        explained["outcome"]["what"],
        "answered with 404: no pool serves `gpt`"
    );
}

#[tokio::test]
async fn a_body_to_be_explained_counts_as_it_is_written() {
    let service = Service::start("pools: [{ model: llama }]").await;
    let body = r#"{"model": "llama", "tools": [{"z": 1e2, "a": 1}], "messages": []}"#;
    let text = json!({"path": "/v1/chat/completions", "body": body}).to_string();
    let value = format!(r#"{{"path": "/v1/chat/completions", "body": {body}}}"#);
    let (_, as_text) = service.request("POST", "/api/explain", None, &text).await;
    let (_, as_value) = service.request("POST", "/api/explain", None, &value).await;
    assert!(as_text["request"]["prompt_bytes"].as_u64() > Some(0));
    assert_eq!(as_text, as_value);
}

#[tokio::test]
async fn a_request_is_explained_as_the_filter_is_configured() {
    let service = Service::start("pools: [{ model: llama }]").await;
    let ask = |filter: Value| {
        let ask = json!({
            "path": "/v1/chat/completions",
            "headers": {"x-user": "me"},
            "body": {"model": "llama"},
            "filter": filter,
        });
        let service = &service;
        async move {
            service
                .request("POST", "/api/explain", None, &ask.to_string())
                .await
        }
    };
    let (_, explained) = ask(json!(null)).await;
    assert_eq!(explained["request"]["session"], json!(null), "{explained}");
    let (_, explained) = ask(json!({"role": "request", "session": [{"header": "x-user"}]})).await;
    let session = SessionSecret::default().hash(b"me");
    assert_eq!(explained["request"]["session"], session, "{explained}");
    for wrong in [
        json!({"role": "response"}),
        json!({"role": "request", "x": 1}),
    ] {
        let (status, body) = ask(wrong).await;
        assert_eq!(status, 400);
        assert!(message(&body).contains("`filter`"), "{body}");
    }
}

#[tokio::test]
async fn a_web_page_cannot_ask_under_a_name_of_its_own() {
    let service = Service::start(WITH_TOKEN).await;
    for (host, status) in [
        ("attacker.example:9003", "403"),
        ("localhost:9003", "200"),
        ("127.0.0.1", "200"),
    ] {
        let request =
            format!("GET /api/pools HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let mut stream = TcpStream::connect(service.admin).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(status), "{host}: {answer}");
    }
}

#[tokio::test]
async fn silent_connections_do_not_block_other_clients() {
    let service = Service::start(WITH_TOKEN).await;
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(service.admin).await.unwrap());
    }
    // Each batch of connections has five seconds to say what it wants; the last of ours go at once.
    silent.truncate(100);
    let (status, _) = service.request_text("GET", "/healthz", None, "").await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_flood_of_connections_leaves_health_its_own() {
    let service = Service::start("{}").await;
    let mut flood = Vec::new();
    for number in 0..300 {
        let mut idle = TcpStream::connect(service.admin).await.unwrap();
        if number % 2 == 0 {
            // The head of a request that never ends.
            idle.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n")
                .await
                .unwrap();
        }
        flood.push(idle);
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        let (status, body) = service.request_text("GET", path, None, "").await;
        assert_eq!(status, 200, "{path}: {body}");
    }
}

#[tokio::test]
async fn slow_uploads_keep_no_explanation_waiting() {
    let service = Service::start("pools: [{ model: llama }]").await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut upload = TcpStream::connect(service.admin).await.unwrap();
        let head = "POST /api/explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
        upload.write_all(head.as_bytes()).await.unwrap();
        slow.push(upload);
    }
    let request = json!({"path": "/v1/completions", "body": {"model": "llama", "prompt": "hi"}});
    let request = request.to_string();
    let asked = service.request("POST", "/api/explain", None, &request);
    // The uploads are cut after ten seconds.
    let asked = tokio::time::timeout(std::time::Duration::from_secs(8), asked);
    let (status, body) = asked.await.expect("an explanation while others upload");
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_post_to_explain() {
    let service = Service::start("pools: [{model: m}]").await;
    let body = json!({ "path": "/v1/chat/completions", "body": "{}" }).to_string();
    let post = async |content_type: Option<&str>| {
        let request = axum::http::Request::post(format!("http://{}/api/explain", service.admin));
        let request = match content_type {
            Some(content_type) => request.header("content-type", content_type),
            None => request,
        };
        let client =
            hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
                .build_http();
        let body = http_body_util::Full::new(bytes::Bytes::from(body.clone()));
        let response = client.request(request.body(body).unwrap()).await.unwrap();
        response.status().as_u16()
    };
    for simple in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=application/json"),
    ] {
        assert_eq!(post(simple).await, 415, "{simple:?}");
    }
    for json in ["application/json", "Application/JSON; charset=utf-8"] {
        assert_ne!(post(Some(json)).await, 415, "{json}");
    }
}

/// Two pools, and a third one where `more` is.
fn pools(more: &str) -> String {
    format!("admin: {{ token_file: token }}\npools:\n  - model: a\n  - model: b\n{more}")
}

#[tokio::test]
async fn a_configuration_file_that_is_written_in_steps_takes_no_pool_away() {
    let service = Service::start(&pools("")).await;
    let b = service.pool_registry.pool_for("b").unwrap();
    service.write("# Managed by a slow writer.\n");
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(service.pool_registry.pool_for("b").is_some());
    service.write("pools:\n  - model: a\n");
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    service.write(&pools("  - model: c\n"));
    wait_until("the whole file is applied", || {
        service.pool_registry.pool_for("c").is_some()
    })
    .await;
    let kept = service.pool_registry.pool_for("b").unwrap();
    assert!(std::sync::Arc::ptr_eq(&b, &kept), "it has learned much");
}

#[tokio::test]
async fn a_reload_removes_every_pool_only_where_the_file_says_so() {
    let service = Service::start(&pools("")).await;
    let reload = async |text: &str| {
        service.write(text);
        let reload = service.request("POST", "/api/reload", Some(TOKEN), "");
        let (status, body) = reload.await;
        (status, body["error"]["message"].to_string())
    };
    let is_last_applied = async |value: u8| {
        let (_, page) = service.request_text("GET", "/metrics", None, "").await;
        page.contains(&format!("isotherm_config_last_reload_successful {value}\n"))
    };
    let token = "admin: { token_file: token }\n";
    for part in [
        String::new(),
        "# comment\n".into(),
        token.into(),
        format!("{token}pools:\n"),
    ] {
        let (status, message) = reload(&part).await;
        assert_eq!(status, 422, "{part}");
        assert!(message.contains("write `"), "{message}");
        assert!(is_last_applied(0).await, "{part}");
        assert_eq!(service.pool_registry.pools().len(), 2, "{part}");
    }
    assert_eq!(reload(&format!("{token}pools: []\n")).await.0, 200);
    assert!(is_last_applied(1).await);
    assert!(service.pool_registry.pool_for("b").is_none());
    assert_eq!(reload(token).await.0, 200);
    assert_eq!(reload(&pools("")).await.0, 200);
    assert_eq!(reload("{}").await.0, 200);
}

#[tokio::test]
async fn a_configuration_file_that_is_a_pipe_for_a_while_is_followed_again() {
    let service = Service::start(&pools("")).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::fs::remove_file(&service.file).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(&service.file)
        .status();
    assert!(made.unwrap().success());
    let (status, body) = service
        .request("POST", "/api/reload", Some(TOKEN), "")
        .await;
    assert_eq!(status, 422, "{body}");
    assert!(body.to_string().contains("not a regular file"), "{body}");
    // The watcher has looked at the pipe by then.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    std::fs::remove_file(&service.file).unwrap();
    service.write(&pools("  - model: c\n"));
    wait_until("the file is applied", || {
        service.pool_registry.pool_for("c").is_some()
    })
    .await;
}

#[tokio::test]
async fn a_load_report_without_running_requests_leaves_those_of_the_last_page_in_the_list() {
    let engine = FakeEngine::start(vllm(0)).await;
    let service = Service::start("pools: [{ model: m, probe: { interval_ms: 60000 } }]").await;
    let pool = service.pool_registry.pool_for("m").unwrap();
    let replica = pool.add_replica(engine.addr).unwrap();
    wait_until("probed", || pool.unprobed().is_none()).await;
    let report = isotherm_router::Load {
        pending: 0,
        running: None,
        kv_usage: Some(0.75),
        kv_capacity_tokens: None,
    };
    pool.probed(replica, report, pool.clock().now());
    let (_, list) = service.request("GET", "/api/replicas", None, "").await;
    assert_eq!(
        (&list[0]["running"], &list[0]["kv_usage"]),
        (&json!(2), &json!(0.75))
    );
}

#[tokio::test]
async fn an_explanation_counts_tokens_by_the_learned_length() {
    let service = Service::start("pools: [{ model: m, push: blind }]").await;
    let pool = service.pool_registry.pool_for("m").unwrap();
    pool.add_replica(([127, 0, 0, 1], 1).into()).unwrap();
    let explain = async || {
        let text = "x".repeat(6_000);
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": text }] });
        let request = json!({ "path": "/v1/chat/completions", "body": body }).to_string();
        let explained = service.request("POST", "/api/explain", None, &request);
        explained.await.1
    };
    // An engine whose tokens have eight bytes.
    for session in 0..200_u64 {
        let block = isotherm_fingerprint::BlockHash {
            hash: session + 1,
            end_bytes: 256,
        };
        let fingerprint = isotherm_fingerprint::Fingerprint::new(vec![block], 4_000).unwrap();
        let request = RouteRequest {
            fingerprint: std::sync::Arc::new(fingerprint),
            prompt_tokens: 1_000,
            ..RouteRequest::default()
        };
        let (mut guard, submission) = pool.submit(&request);
        let Submission::Decided(PoolDecision::Dispatch(route)) = submission else {
            panic!("the replica takes everything");
        };
        guard.dispatch(&route);
        guard.finish(&Outcome {
            status: 200,
            prompt_tokens: Some(500),
            completion_tokens: Some(1),
            ..Outcome::default()
        });
    }
    let explained = explain().await;
    let learned = explained["learned"]["bytes_per_token"].as_f64().unwrap();
    let bytes = explained["request"]["prompt_bytes"].as_f64().unwrap();
    let tokens = explained["request"]["prompt_tokens"].as_f64().unwrap();
    assert!(learned > 5.0, "{explained}");
    assert_eq!(tokens, (bytes / learned).round());
}
