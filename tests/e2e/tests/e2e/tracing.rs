//! One trace, from the client's `traceparent` to the engine's span.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use isotherm_e2e::{Client, MODEL, admin, chat, permit, send, with_long_timeouts};
use isotherm_harness::span_collector::{SpanCollector, hex};
use isotherm_harness::{EngineOptions, Pool, Stack, StackBuilder, envoy};
use serde_json::json;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const UNSAMPLED_TRACE: &str = "5bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const SPEED: f64 = 20.0;

/// A stack whose service and engine export their spans to `collector`.
fn traced(name: &str, collector: &SpanCollector) -> StackBuilder {
    let url = collector.url();
    let pool = Pool::new(MODEL).replicas(1).engine(EngineOptions {
        speed: SPEED,
        arguments: vec!["--otlp-traces-endpoint".to_owned(), url.clone()],
        ..EngineOptions::default()
    });
    with_long_timeouts(Stack::builder(name).pool(pool))
        .service(move |config| config.set("tracing", json!({ "endpoint": url })))
}

/// Sends a request with each sampling flag, and checks the trace of the sampled one.
async fn check_trace(stack: &Stack, collector: &SpanCollector) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    for (trace, flags) in [(UNSAMPLED_TRACE, "00"), (TRACE, "01")] {
        let parent = format!("00-{trace}-{CALLER}-{flags}");
        let body = chat(&"A prompt of some length. ".repeat(40));
        let request = client.post_chat(&body).header("traceparent", parent);
        send(request).await?.success()?;
    }
    let request = collector.wait_for_span(TRACE, "isotherm.request").await?;
    assert_eq!(hex(&request.parent_span_id), CALLER);
    for step in ["isotherm.hold", "isotherm.decision", "isotherm.forwarding"] {
        let span = collector.wait_for_span(TRACE, step).await?;
        assert_eq!(span.parent_span_id, request.span_id, "{step}");
        assert!(
            span.start_time_unix_nano <= span.end_time_unix_nano,
            "{step}"
        );
    }
    let forwarding = collector
        .wait_for_span(TRACE, "isotherm.forwarding")
        .await?;
    let engine = collector.wait_for_span(TRACE, "llm_request").await?;
    assert_eq!(engine.parent_span_id, forwarding.span_id);
    assert_eq!(collector.len(), 5, "the other caller does not sample");
    Ok(())
}

#[tokio::test]
async fn a_callers_trace_goes_through_filter_service_and_engine() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let collector = SpanCollector::start().await?;
    let stack = traced("tracing", &collector).start().await?;
    check_trace(&stack, &collector).await
}

#[tokio::test]
async fn a_callers_trace_goes_through_external_processing() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let collector = SpanCollector::start().await?;
    let stack = traced("tracing-ext-proc", &collector).envoy(|document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.remove("decision_stream").map(drop)
        })
    });
    let stack = stack.start().await?;
    check_trace(&stack, &collector).await
}

#[tokio::test]
async fn the_environment_gives_the_exporter_a_ca_headers_and_attributes() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let collector = SpanCollector::start_with_tls().await?;
    let folder = tempfile::tempdir()?;
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, collector.ca().context("a collector with TLS")?)?;
    let url = collector.url();
    let stack = Stack::builder("tracing-tls")
        .service(move |config| config.set("tracing", json!({ "endpoint": url })))
        .environment("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)
        .environment("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
        .environment("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=isotherm-0");
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let request = client
        .post_chat(&chat("A prompt."))
        .header("traceparent", parent);
    send(request).await?.success()?;
    collector.wait_for_span(TRACE, "isotherm.request").await?;
    assert_eq!(collector.authorization().as_deref(), Some("Bearer token"));
    for (name, value) in [("service.name", "isotherm"), ("k8s.pod.name", "isotherm-0")] {
        let found = collector.resource_attribute(name);
        assert_eq!(found.as_deref(), Some(value), "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_collector_that_is_away_delays_no_request_and_no_stop() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let collector = SpanCollector::start().await?;
    let stack = traced("tracing-away", &collector);
    let mut stack = stack
        .service(|config| config.set("tracing/ratio", 1.0))
        .start()
        .await?;
    drop(collector);
    let client = Client::new(&stack.url(""))?;
    for number in 0..20 {
        let body = chat(&format!("number {number}"));
        client.chat("s", &body).await?.success()?;
    }
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 20).await?;
    admin::wait_for_log(stack.service(), "spans cannot be exported").await?;
    stack.service_mut().stop(Duration::from_secs(60)).await
}
