//! The page of metrics about requests: their times, their tokens, their results, and how much of each prompt was read.

use std::time::Duration;

use isotherm_fingerprint::Fingerprint;
use isotherm_fingerprint::outcome::Outcome;

use super::{ONE_AT_A_TIME, Service};

const TWO_MODELS: &str = "
pools:
  - { model: llama, cluster: l, probe: { interval_ms: 20 } }
  - { model: qwen, cluster: q }
";

/// The value of a series; panics without one.
fn value(page: &str, series: &str) -> f64 {
    let start = format!("{series} ");
    let value = page.lines().find_map(|line| line.strip_prefix(&start));
    value
        .unwrap_or_else(|| panic!("no {series} in {page}"))
        .parse()
        .unwrap()
}

/// A streamed answer of ten tokens, whose first came after five milliseconds.
fn answer() -> Outcome {
    Outcome {
        status: 200,
        ttft_us: Some(5_000),
        is_stream: true,
        completion_tokens: Some(10),
        ..Outcome::default()
    }
}

#[tokio::test]
async fn a_response_counts_in_the_class_of_its_result() {
    let service = Service::start(TWO_MODELS, 1).await;
    let of_status = |status| Outcome {
        status,
        ..Outcome::default()
    };
    for (result, outcome) in [
        ("2xx", answer()),
        ("4xx", of_status(400)),
        ("5xx", of_status(503)),
        (
            "broken",
            Outcome {
                is_broken: true,
                ..of_status(503)
            },
        ),
        (
            "unsent",
            Outcome {
                is_unsent: true,
                ..of_status(429)
            },
        ),
    ] {
        let series = format!(r#"isotherm_finished_total{{pool="llama",result="{result}"}}"#);
        assert_eq!(value(&service.metrics().await, &series), 0.0, "{result}");
        let mut call = service.chat("llama").await;
        call.goes_on().await;
        call.outcome(&outcome.encode()).await;
        assert_eq!(value(&service.metrics().await, &series), 1.0, "{result}");
    }
    let page = service.metrics().await;
    let of_pool = |name: &str| value(&page, &format!(r#"isotherm_{name}{{pool="llama"}}"#));
    assert_eq!(of_pool("output_tokens_total"), 10.0);
    assert_eq!(of_pool("decision_duration_seconds_count"), 5.0);
    // Only answers have a duration.
    for name in ["request_duration", "request_ttft", "time_per_output_token"] {
        let series = format!(r#"isotherm_{name}_seconds_count{{pool="llama",tier=""}}"#);
        assert_eq!(value(&page, &series), 1.0, "{name}");
    }
}

#[tokio::test]
async fn the_time_to_the_first_token_contains_the_time_in_the_queue() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut first = service.chat("llama").await;
    first.goes_on().await;
    let mut second = service.chat("llama").await;
    second.waits().await;
    let wait = Duration::from_millis(60);
    tokio::time::sleep(wait).await;
    first.outcome(&Outcome::default().encode()).await;
    second.goes_on().await;
    second.outcome(&answer().encode()).await;
    let page = service.metrics().await;
    let sum = value(
        &page,
        r#"isotherm_request_ttft_seconds_sum{pool="llama",tier=""}"#,
    );
    assert!(sum >= wait.as_secs_f64() + 0.005, "{sum}");
}

#[tokio::test]
async fn prompts_count_by_the_part_that_was_read() {
    let service = Service::start(TWO_MODELS, 1).await;
    let fingerprint = Fingerprint::default().encode();
    let all = [
        ("x-isotherm-tokens", "100"),
        ("x-isotherm-fingerprint", &*fingerprint),
    ];
    let part = [
        ("x-isotherm-tokens", "100+;7"),
        ("x-isotherm-fingerprint", &*fingerprint),
    ];
    let none = [("x-isotherm-tokens", "100")];
    for (read, path, headers) in [
        ("whole", "/v1/chat/completions", &all[..]),
        ("partial", "/v1/chat/completions", &part),
        ("none", "/v1/chat/completions", &none),
        // A path without a prompt counts nowhere.
        ("none", "/v1/messages/count_tokens", &none),
    ] {
        let mut call = service.call().await;
        let of_all = [
            (":method", "POST"),
            (":path", path),
            ("x-isotherm-model", "llama"),
        ];
        call.headers(&[&of_all, headers].concat()).await;
        call.goes_on().await;
        let series = format!(r#"isotherm_prompts_total{{pool="llama",read="{read}"}}"#);
        assert_eq!(
            value(&service.metrics().await, &series),
            1.0,
            "{read} {path}"
        );
    }
}

#[tokio::test]
async fn the_page_describes_the_process_and_its_version() {
    let service = Service::start(TWO_MODELS, 0).await;
    let page = service.metrics().await;
    let version = env!("CARGO_PKG_VERSION");
    let series = format!(r#"isotherm_build_info{{version="{version}"}}"#);
    assert_eq!(value(&page, &series), 1.0);
    assert!(value(&page, "process_cpu_seconds_total") > 0.0);
    assert!(value(&page, "process_resident_memory_bytes") > 1e6);
    let open = value(&page, "process_open_fds");
    assert!(
        (3.0..=value(&page, "process_max_fds")).contains(&open),
        "{open}"
    );
    for name in [
        "process_start_time_seconds",
        "isotherm_config_last_reload_success_timestamp_seconds",
    ] {
        assert!(value(&page, name) > 1e9, "{name}");
    }
}
