//! Decisions on requests, and the effects of their outcomes.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{Struct, Value};
use isotherm_fingerprint::outcome::{LoadReport, Outcome};
use isotherm_fingerprint::{BlockHash, Fingerprint};

use super::call::Answer;
use super::{ONE_AT_A_TIME, Service, wait_until};

const TWO_MODELS: &str = "
decision_header: true
pools:
  - { model: llama, aliases: [org/llama], cluster: l, probe: { interval_ms: 20 } }
  - { model: qwen, cluster: q }
";

#[tokio::test]
async fn a_request_goes_to_a_replica_with_fallbacks() {
    let service = Service::start(TWO_MODELS, 2).await;
    let mut call = service.chat("org/llama").await;
    let answer = call.goes_on().await;
    let destination = answer.destination().unwrap();
    let mut addrs: Vec<_> = destination.split(',').map(str::to_owned).collect();
    let decision = answer.header("x-isotherm-decision").unwrap();
    assert!(
        decision.starts_with(&format!("replica={};policy=isotherm;", addrs[0])),
        "{decision}"
    );
    addrs.sort();
    let mut expected: Vec<_> = service.engines.iter().map(|e| e.addr.to_string()).collect();
    expected.sort();
    assert_eq!(
        addrs, expected,
        "the chosen one and the other as a fallback"
    );
    assert_eq!(answer.lb_endpoint.as_deref(), Some(destination));
    assert_eq!(answer.header("x-isotherm-cluster"), Some("l"));
    assert!(answer.clear_route_cache, "or the route by cluster stays");
}

#[tokio::test]
async fn a_reply_removes_headers_for_other_regions_and_repeats_no_cluster() {
    let service = Service::start(TWO_MODELS, 1).await;
    let mut call = service.call().await;
    call.headers(&[
        (":method", "POST"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-session", "s"),
        ("x-isotherm-tokens", "100"),
        ("x-isotherm-origin", "forged"),
        ("x-isotherm-cluster", "l"),
    ])
    .await;
    let answer = call.goes_on().await;
    assert!(answer.destination().is_some());
    assert_eq!(
        answer.removed,
        ["x-isotherm-origin"],
        "what the route does not take away"
    );
    assert_eq!(answer.header("x-isotherm-cluster"), None);
}

#[tokio::test]
async fn an_unknown_model_is_a_404_in_openais_format() {
    let service = Service::start(TWO_MODELS, 0).await;
    let mut call = service.chat("gpt").await;
    let Answer::Immediate { status, body, .. } = call.answer().await else {
        panic!("it goes on");
    };
    assert_eq!(status, 404);
    assert_eq!(body["error"]["code"], "model_not_found");
    assert_eq!(body["error"]["param"], "model");
    assert!(call.message().await.is_none(), "the stream ends");
}

#[tokio::test]
async fn models_are_listed_with_their_aliases() {
    let service = Service::start(TWO_MODELS, 0).await;
    let mut call = service.call().await;
    call.headers(&[(":method", "GET"), (":path", "/v1/models")])
        .await;
    let Answer::Immediate { status, body, .. } = call.answer().await else {
        panic!("it goes on");
    };
    assert_eq!(status, 200);
    let data = body["data"].as_array().unwrap();
    let ids: Vec<_> = data.iter().map(|model| model["id"].clone()).collect();
    assert_eq!(ids, ["llama", "org/llama", "qwen"]);
}

#[tokio::test]
async fn a_rejection_without_replicas_tells_when_to_retry() {
    let service = Service::start(TWO_MODELS, 0).await;
    let mut call = service.chat("qwen").await;
    let Answer::Immediate {
        status,
        retry_after,
        body,
        ..
    } = call.answer().await
    else {
        panic!("it goes on");
    };
    assert_eq!(status, 503);
    assert!(retry_after.is_some());
    assert_eq!(body["error"]["code"], "no_replica");
}

#[tokio::test]
async fn a_page_of_the_engine_passes_through_without_capacity() {
    let config = format!("paths: [/version]\n{ONE_AT_A_TIME}");
    let service = Service::start(&config, 0).await;
    let mut call = service.call().await;
    call.headers(&[(":method", "GET"), (":path", "/version")])
        .await;
    let answer = call.goes_on().await;
    assert_eq!(answer.destination(), None);
    assert_eq!(answer.header("x-isotherm-cluster"), Some("l"));
}

#[tokio::test]
async fn the_gateways_subset_restricts_the_route() {
    let service = Service::start(TWO_MODELS, 3).await;
    let allowed = service.engines[1].addr.to_string();
    for (subset, expected) in [
        (allowed.as_str(), Some(allowed.as_str())),
        ("10.9.9.9:1", None),
    ] {
        let mut call = service.call().await;
        let headers = [(":method", "POST"), ("x-isotherm-model", "llama")];
        call.headers_with(&headers, Some(hint(subset))).await;
        match (call.answer().await, expected) {
            (Answer::GoOn(answer), Some(_)) => assert_eq!(answer.destination(), expected),
            (Answer::Immediate { status, body, .. }, None) => {
                assert_eq!(status, 503);
                assert_eq!(body["error"]["code"], "empty_subset");
            }
            (answer, _) => panic!("{answer:?}"),
        }
    }
}

#[tokio::test]
async fn the_outcome_reaches_the_pool_and_not_the_client() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let blocks = vec![BlockHash {
        hash: 7,
        end_bytes: 256,
    }];
    let fingerprint = Fingerprint::new(blocks, 400).unwrap();
    let mut call = service.call().await;
    call.headers(&[
        (":method", "POST"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-tokens", "100"),
        ("x-isotherm-fingerprint", &fingerprint.encode()),
    ])
    .await;
    call.goes_on().await;
    let outcome = Outcome {
        status: 200,
        ttft_us: Some(5_000),
        is_stream: true,
        prompt_tokens: Some(100),
        cached_tokens: Some(64),
        completion_tokens: Some(10),
        load: Some(LoadReport {
            waiting: 0,
            running: Some(7),
            kv_usage: Some(0.5),
        }),
        response_id: None,
        upstream: Some(service.engines[0].addr.to_string()),
        is_broken: false,
        is_timeout: false,
        is_unsent: false,
        attempts: None,
        cluster: None,
        is_error: false,
    };
    let answer = call.outcome(&outcome.encode()).await;
    assert_eq!(answer.header_mutation, None, "the filter takes it away");
    let pool = service.pool();
    wait_until("it counts as finished", || {
        pool.stats().counters.finished_ok == 1
    })
    .await;
    let stats = pool.stats();
    assert_eq!(stats.counters.measured_cached_tokens, 64);
    assert_eq!(stats.in_flight, 0);
    drop(call);
    let page = service.metrics().await;
    assert!(
        page.contains("isotherm_request_ttft_seconds_count{pool=\"llama\",tier=\"\"} 1"),
        "{page}"
    );
    assert_eq!(pool.stats().counters.aborted_in_flight, 0);
}

#[tokio::test]
async fn requests_that_routes_send_elsewhere_and_timeouts_end_are_counted() {
    let service = Service::start(TWO_MODELS, 2).await;
    let pool = service.pool();
    let engines = [0, 1].map(|number: usize| service.engines[number].addr.to_string());
    let elsewhere = |upstream: &str, attempts, cluster: &str| Outcome {
        status: 200,
        upstream: Some(upstream.to_owned()),
        attempts: Some(attempts),
        cluster: Some(cluster.to_owned()),
        ..Outcome::default()
    };
    let late = Outcome {
        status: 504,
        is_timeout: true,
        ..Outcome::default()
    };
    for (number, expected) in [
        (0, [1, 0, 0]),
        (1, [2, 0, 0]),
        (2, [2, 1, 0]),
        (3, [2, 2, 0]),
    ]
    .into_iter()
    .chain([(4, [2, 2, 1])])
    {
        let mut call = service.chat("llama").await;
        let answer = call.goes_on().await;
        let selected = answer.destination().unwrap().split(',').next().unwrap();
        let other = engines.iter().find(|engine| *engine != selected).unwrap();
        let outcome = match number {
            0 => elsewhere(other, 1, "another"),
            1 => elsewhere("10.9.9.9:80", 1, "l"),
            2 => elsewhere(other, 2, "l"),
            // Envoy has ejected the selected replica.
            3 => elsewhere(other, 1, "l"),
            _ => late.clone(),
        };
        call.outcome(&outcome.encode()).await;
        let counted = || {
            let counters = pool.stats().counters;
            [
                counters.overridden,
                counters.retried_elsewhere,
                counters.timed_out,
            ]
        };
        wait_until("it counts", || counted() == expected).await;
    }
    let page = service.metrics().await;
    for line in [
        "isotherm_overridden_total{pool=\"llama\"} 2",
        "isotherm_timed_out_total{pool=\"llama\"} 1",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn a_prompt_that_envoy_sent_nowhere_is_in_no_index() {
    let service = Service::start(TWO_MODELS, 2).await;
    let pool = service.pool();
    let blocks = vec![BlockHash {
        hash: 7,
        end_bytes: 256,
    }];
    let fingerprint = Fingerprint::new(blocks, 400).unwrap().encode();
    for (ended, status) in [(1, 429), (2, 200)] {
        let mut call = service.call().await;
        let headers = [
            (":method", "POST"),
            ("x-isotherm-model", "llama"),
            ("x-isotherm-fingerprint", &*fingerprint),
        ];
        call.headers(&headers).await;
        let answer = call.goes_on().await;
        let decision = answer.header("x-isotherm-decision").unwrap();
        assert!(decision.contains(";matched=0.000"), "{decision}");
        let outcome = Outcome {
            status,
            is_unsent: true,
            ..Outcome::default()
        };
        call.outcome(&outcome.encode()).await;
        wait_until("it counts", || {
            pool.stats().counters.finished_failed == ended
        })
        .await;
    }
}

#[tokio::test]
async fn only_a_streamed_response_reports_the_time_to_its_first_token() {
    let service = Service::start(TWO_MODELS, 1).await;
    let pool = service.pool();
    for (ended, is_stream) in [(1, false), (2, true)] {
        let mut call = service.chat("llama").await;
        call.goes_on().await;
        let outcome = Outcome {
            status: 200,
            ttft_us: Some(5_000),
            is_stream,
            ..Outcome::default()
        };
        call.outcome(&outcome.encode()).await;
        wait_until("it counts as finished", || {
            pool.stats().counters.finished_ok == ended
        })
        .await;
        let count = u8::from(is_stream);
        let line =
            format!("isotherm_request_ttft_seconds_count{{pool=\"llama\",tier=\"\"}} {count}");
        let page = service.metrics().await;
        assert!(page.contains(&line), "{line}\n{page}");
    }
}

#[tokio::test]
async fn other_messages_of_envoy_pass() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut call = service.chat("llama").await;
    call.goes_on().await;
    let body = || HttpBody {
        body: b"text".to_vec(),
        ..HttpBody::default()
    };
    for request in [
        Request::RequestBody(body()),
        Request::RequestTrailers(HttpTrailers::default()),
        Request::ResponseHeaders(HttpHeaders::default()),
        Request::ResponseBody(body()),
        Request::ResponseTrailers(HttpTrailers::default()),
    ] {
        call.send(ProcessingRequest {
            request: Some(request.clone()),
            ..ProcessingRequest::default()
        })
        .await;
        let response = call.message().await.unwrap().response.unwrap();
        assert!(
            matches!(
                (&request, &response),
                (Request::RequestBody(_), Response::RequestBody(_))
                    | (Request::RequestTrailers(_), Response::RequestTrailers(_))
                    | (Request::ResponseHeaders(_), Response::ResponseHeaders(_))
                    | (Request::ResponseBody(_), Response::ResponseBody(_))
                    | (Request::ResponseTrailers(_), Response::ResponseTrailers(_))
            ),
            "{request:?} got {response:?}"
        );
    }
}

#[tokio::test]
async fn every_documented_metric_is_served() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut call = service.call().await;
    call.headers(&[
        (":method", "POST"),
        ("x-isotherm-model", "llama"),
        ("x-isotherm-tokens", "many"),
    ])
    .await;
    call.goes_on().await;
    let documented: Vec<&str> = include_str!("../../../docs/metrics.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `isotherm_"))
        .filter(|line| !line.starts_with("batch_")) // the page of `isotherm batch` has them
        .map(|line| line.split('`').next().unwrap())
        .map(|name| {
            let ends = ["_total", "_info"];
            let base = ends.iter().find_map(|end| name.strip_suffix(end));
            base.unwrap_or(name)
        })
        .collect();
    assert!(documented.len() > 50, "{documented:?}");
    let is_on = |page: &str, name: &str| page.contains(&format!("# TYPE isotherm_{name} "));
    // The metrics of probes come with the first probe.
    let mut page = service.metrics().await;
    for _ in 0..100 {
        if documented.iter().all(|name| is_on(&page, name)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        page = service.metrics().await;
    }
    let missing: Vec<&&str> = documented
        .iter()
        .filter(|name| !is_on(&page, name))
        .collect();
    panic!("{missing:?}: {page}");
}

pub(super) fn hint(subset: &str) -> Metadata {
    let value = Value {
        kind: Some(Kind::StringValue(subset.into())),
    };
    let key = "x-gateway-destination-endpoint-subset".to_owned();
    let fields = Struct {
        fields: [(key, value)].into(),
    };
    Metadata {
        filter_metadata: [("envoy.lb.subset_hint".to_owned(), fields)].into(),
        ..Metadata::default()
    }
}
