//! The filter's gate, on an Envoy without `allow_on_headers_stop_iteration`: the request role reads whole prompts, and the
//! gate behind it holds the headers. Each instance has a VM of its own, as in Envoy Gateway.

use std::time::Duration;

use anyhow::Context as _;
use isotherm_e2e::bodies::{
    SIZES, chat_of, check_all_sizes, send_body, send_head, send_with_pause, trickle,
};
use isotherm_e2e::{Action, Client, Http2Client, ScriptedReplica, admin, permit, scripted};
use isotherm_harness::{Document, Stack, StackBuilder, envoy};
use serde_json::{Value, json};

const FILTER: &str = "isotherm.request";
const LISTENER: &str = "static_resources/listeners/name=llm";
const HTTP_FILTERS: &str = "filter_chains/0/filters/0/typed_config/http_filters";
const ROUTES: &str = "filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm";
const WITHHELD: &str = "wasmcustom.isotherm_filter_skipped_body_withheld";
const EXTERNAL: &str = "http.llm.ext_proc.isotherm.streams_started";
const LIMIT_BYTES: usize = 32_768;
const KEY: &str = "request_body_buffer_limit";

/// Removes the field, and tells the request role that a gate follows.
fn expect_gate(document: &mut Document) -> anyhow::Result<()> {
    let field = "config/allow_on_headers_stop_iteration";
    envoy::set_in_filter(document, FILTER, field, &json!(false))?;
    envoy::edit_filter(document, FILTER, |filter| filter.set("gate", true))
}

/// Adds the gate behind the request role.
fn add_gate(document: &mut Document) -> anyhow::Result<()> {
    let filters = format!("{LISTENER}/{HTTP_FILTERS}");
    let mut gate = Document(document.get(&format!("{filters}/name={FILTER}"))?.clone());
    gate.set("name", "isotherm.gate")?;
    gate.remove("disabled")?;
    gate.set("typed_config/config/name", "isotherm.gate")?;
    gate.set("typed_config/config/vm_config/vm_id", "isotherm.gate")?;
    let configuration = "typed_config/config/configuration/value";
    gate.set(configuration, r#"{"role":"gate"}"#)?;
    let filters = document.get_mut(&filters)?.as_array_mut();
    filters.context("the filters are a list")?.insert(1, gate.0);
    Ok(())
}

/// Sets the limit of Envoy Gateway's listeners, and the one that the filter is told; 0 stands for none.
fn set_small_buffer(document: &mut Document, told_bytes: usize) -> anyhow::Result<()> {
    document.remove(&format!("{LISTENER}/{ROUTES}/{KEY}"))?;
    let limit = format!("{LISTENER}/per_connection_buffer_limit_bytes");
    document.set(&limit, LIMIT_BYTES)?;
    envoy::edit_filter(document, FILTER, |filter| filter.set(KEY, told_bytes))
}

fn without_decision_stream(document: &mut Document) -> anyhow::Result<()> {
    envoy::edit_filter(document, FILTER, |filter| {
        filter.remove("decision_stream").map(drop)
    })
}

fn with_gate(stack: StackBuilder) -> StackBuilder {
    stack.workers(1).envoy(expect_gate).envoy(add_gate)
}

async fn start_with_stream(stack: StackBuilder) -> anyhow::Result<Stack> {
    let stack = stack.start().await?;
    stack.envoy().wait_for_decision_streams(2).await?;
    Ok(stack)
}

#[tokio::test]
async fn with_a_decision_stream_it_decides_on_prompts_of_every_size() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = start_with_stream(with_gate(scripted("gate-stream", &[&replica], 8))).await?;
    let client = Client::new(&stack.url(""))?;
    check_all_sizes(&client, &replica).await?;
    assert_eq!(stack.envoy().stat(EXTERNAL).await?, 0);
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 0);
    let sizes = SIZES.len() as u64;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", sizes).await?;
    for request in replica.received() {
        let is_internal = |name: &str| name.starts_with("x-isotherm-");
        let names = request.headers.keys().map(|name| name.as_str());
        let internal: Vec<_> = names.filter(|name| is_internal(name)).collect();
        assert!(internal.is_empty(), "the replica got {internal:?}");
    }
    Ok(())
}

#[tokio::test]
async fn with_ext_proc_it_gets_fingerprints() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let stack = scripted("gate-ext-proc", &[&a, &b], 8).envoy(without_decision_stream);
    let stack = isotherm_e2e::with_decision_header(with_gate(stack));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = chat_of(220 << 10);
    let first = send_body(&client, "one", &body).await?.success()?;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 1).await?;
    let second = send_body(&client, "two", &body).await?.success()?;
    assert_eq!(second.decision("replica"), first.decision("replica"));
    let matched: f64 = second.decision("matched").unwrap_or_default().parse()?;
    assert!(matched > 0.5, "the prompt decides: {matched}");
    assert_eq!(stack.envoy().stat(EXTERNAL).await?, 2);
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_small_buffer_refuses_no_body() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_gate(scripted("gate-small", &[&replica], 8))
        .envoy(|document| set_small_buffer(document, LIMIT_BYTES));
    let stack = start_with_stream(stack).await?;
    let client = Client::new(&stack.url(""))?;
    check_all_sizes(&client, &replica).await?;
    let mut http2 = Http2Client::connect(stack.envoy().address()).await?;
    for bytes in SIZES {
        let body = chat_of(bytes);
        let response = http2.post("/v1/chat/completions", &[], body.clone())?;
        assert_eq!(response.await?.status, 200);
        let received = replica.received();
        assert!(received.last().is_some_and(|last| last.body == body));
    }
    assert_eq!(stack.envoy().stat(EXTERNAL).await?, 0);
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_body_that_trickles_gets_a_408_before_the_gate_opens() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_gate(scripted("gate-trickle", &[&replica], 8)).envoy(|document| {
        envoy::edit_filter(document, FILTER, |filter| {
            filter.set("body_timeout_ms", 400)
        })
    });
    let stack = start_with_stream(stack).await?;
    for headers in ["content-type: application/json", "content-encoding: gzip"] {
        let stream = send_head(stack.envoy().address(), headers, 1_000).await?;
        let response = trickle(stream).await?;
        assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    }
    let arrived = admin::pool_number(stack.service(), "counters/arrived").await?;
    assert_eq!(arrived, 0);
    assert!(replica.received().is_empty());
    Ok(())
}

#[tokio::test]
async fn an_unknown_small_buffer_delays_one_request_and_is_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_gate(scripted("gate-unknown", &[&replica], 8))
        .envoy(|document| set_small_buffer(document, 0));
    let stack = start_with_stream(stack).await?;
    let client = Client::new(&stack.url(""))?;
    check_all_sizes(&client, &replica).await?;
    check_all_sizes(&client, &replica).await?;
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 1);
    assert_eq!(stack.envoy().process().log().matches(KEY).count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_slow_client_is_not_taken_for_a_small_buffer() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = start_with_stream(with_gate(scripted("gate-slow", &[&replica], 8))).await?;
    let body = chat_of(60_000);
    for first_bytes in [0, 1_000, 30_000] {
        let pause = Duration::from_millis(2_300);
        let address = stack.envoy().address();
        let start = send_with_pause(address, &body, first_bytes, pause).await?;
        assert_eq!(start, "HTTP/1.1 200", "{first_bytes}");
        let received = replica.received();
        assert!(received.last().is_some_and(|last| last.body == body));
    }
    // The last one went without its prompt: it might have filled a buffer.
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 1);
    assert_eq!(stack.envoy().process().log().matches(KEY).count(), 0);
    Ok(())
}

#[tokio::test]
async fn requests_wait_in_the_queue_and_a_client_may_leave() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = with_gate(scripted("gate-queue", &[&replica], 1))
        .service(|config| config.set("pools/0/queue", json!({ "length_max": 2 })));
    let stack = start_with_stream(stack).await?;
    let client = Client::new(&stack.url(""))?;
    let first = client.spawn_chat("first");
    replica.wait_until_holding(1).await?;
    let body = chat_of(30 << 20);
    let large = tokio::spawn({
        let (client, body) = (client.clone(), body.clone());
        async move { send_body(&client, "s", &body).await }
    });
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    let leaving = client.spawn_chat("leaving");
    admin::wait_for_pool(stack.service(), "queue_length", 2).await?;

    let refused = send_body(&client, "s", &chat_of(100)).await?;
    assert_eq!(refused.status, 503, "{}", refused.text());
    leaving.abort();
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    replica.release_all();

    first.await??.success()?;
    large.await??.success()?;
    let received = replica.received();
    assert!(received.last().is_some_and(|last| last.body == body));
    admin::wait_until_idle(stack.service()).await
}

#[tokio::test]
async fn every_worker_has_a_gate_of_its_own() -> anyhow::Result<()> {
    const REQUESTS: usize = 60;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_gate(scripted("gate-workers", &[&replica], 64)).workers(3);
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| client.spawn_chat(&format!("number {number}")))
        .collect();
    isotherm_e2e::expect_success(requests).await?;
    let complete = "wasmcustom.isotherm_filter_prompts_complete";
    assert_eq!(stack.envoy().stat(complete).await?, REQUESTS as u64);
    Ok(())
}

#[tokio::test]
async fn without_a_gate_behind_it_the_filter_names_what_is_missing() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("gate-missing", &[&replica], 8).workers(1);
    let stack = stack.envoy(expect_gate).envoy(without_decision_stream);
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    check_all_sizes(&client, &replica).await?;
    let named = stack.envoy().process().log().matches("role `gate`").count();
    assert_eq!(named, 1);
    Ok(())
}

#[tokio::test]
async fn a_forged_mark_of_a_client_has_no_effect() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_gate(scripted("gate-forged", &[&replica], 8));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let request = client.post("/v1/completions", &Value::Null);
    let request = request
        .header("x-isotherm-gate", "1")
        .header("content-encoding", "gzip")
        .body("warm");
    isotherm_e2e::send(request).await?.success()?;
    Ok(())
}
