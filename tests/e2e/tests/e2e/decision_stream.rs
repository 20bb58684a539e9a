//! The decision stream: the filter asks for decisions on it, and external processing asks when the filter cannot.

use isotherm_e2e::{
    Action, Client, ScriptedReplica, admin, chat, expect_success, permit, scripted, send,
};
use isotherm_harness::{Stack, StackBuilder, envoy};

const WORKERS: u16 = 2;
/// Number of streams: one for each worker, and one for Envoy's main thread, which handles no requests.
const STREAMS: u64 = 3;

async fn start(stack: StackBuilder) -> anyhow::Result<Stack> {
    let stack = stack.workers(WORKERS).start().await?;
    stack.envoy().wait_for_decision_streams(STREAMS).await?;
    Ok(stack)
}

/// Number of requests that Envoy asked about by external processing.
async fn external_requests(stack: &Stack) -> anyhow::Result<u64> {
    let stat = "http.llm.ext_proc.isotherm.streams_started";
    stack.envoy().stat(stat).await
}

#[tokio::test]
async fn a_request_decided_on_the_stream_needs_no_external_processing() -> anyhow::Result<()> {
    const REQUESTS: u64 = 20;
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let stack = start(scripted("decision-stream", &[&a, &b], 8)).await?;
    let client = Client::new(&stack.url(""))?;
    let before = external_requests(&stack).await?;
    for number in 0..REQUESTS {
        let body = chat(&format!("number {number}"));
        client.chat(&format!("s{number}"), &body).await?.success()?;
    }
    assert_eq!(external_requests(&stack).await?, before);
    admin::wait_for_pool(stack.service(), "counters/finished_ok", REQUESTS).await?;
    admin::wait_until_idle(stack.service()).await?;
    for request in a.received().iter().chain(&b.received()) {
        let internal: Vec<_> = request
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-isotherm-"))
            .collect();
        assert!(internal.is_empty(), "the replica got {internal:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_stream_reports_a_client_that_disconnects() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = start(scripted("decision-stream-abort", &[&replica], 8)).await?;
    let client = Client::new(&stack.url(""))?;
    let response = client.spawn_chat("hello");
    replica.wait_until_holding(1).await?;
    admin::wait_for_pool(stack.service(), "in_flight", 1).await?;

    response.abort();

    admin::wait_until_idle(stack.service()).await?;
    let aborted = admin::counter(stack.service(), "isotherm_aborted_total", &[]).await?;
    assert_eq!(aborted, 1);
    assert_eq!(external_requests(&stack).await?, 0);
    Ok(())
}

#[tokio::test]
async fn the_filter_opens_a_broken_stream_again() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let mut stack = start(scripted("decision-stream-broken", &[&replica], 8)).await?;
    let client = Client::new(&stack.url(""))?;
    stack.service_mut().kill()?;
    client
        .chat("s", &chat("without the service"))
        .await?
        .success()?;
    stack.service_mut().start().await?;
    stack.envoy().wait_for_decision_streams(2 * STREAMS).await?;
    let before = external_requests(&stack).await?;
    client.chat("s", &chat("again")).await?.success()?;
    assert_eq!(external_requests(&stack).await?, before);
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 1).await
}

#[tokio::test]
async fn a_body_too_large_to_buffer_needs_external_processing() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = start(scripted("decision-stream-large", &[&replica], 8)).await?;
    let client = Client::new(&stack.url(""))?;
    let before = external_requests(&stack).await?;
    let body = chat(&"A prompt that is longer than Envoy may buffer. ".repeat(120_000));
    client.chat("s", &body).await?.success()?;
    assert_eq!(external_requests(&stack).await?, before + 1);
    Ok(())
}

#[tokio::test]
async fn a_request_without_a_readable_prompt_is_decided_on_the_stream() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = start(scripted("decision-stream-unread", &[&replica], 8)).await?;
    let client = Client::new(&stack.url(""))?;
    let before = external_requests(&stack).await?;
    let twice =
        r#"{"model":"llama-3.1-8b","messages":[],"messages":[{"role":"user","content":"hi"}]}"#;
    let request = client.post_chat(&chat("")).body(twice);
    send(request).await?.success()?;
    send(client.get("/v1/models")).await?.success()?;
    assert_eq!(external_requests(&stack).await?, before);
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 1).await
}

#[tokio::test]
async fn the_service_learns_how_a_response_of_external_processing_ends() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("ext-proc-ends", &[&replica], 8).envoy(|document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.remove("decision_stream").map(drop)
        })
    });
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    replica.push_action(Action::Status(500));
    assert_eq!(client.chat("s", &chat("fails")).await?.status, 500);
    admin::wait_for_pool(stack.service(), "counters/finished_failed", 1).await?;
    replica.push_action(Action::Stream);
    let stream = client.spawn_chat("streams");
    replica.wait_until_holding(1).await?;
    admin::wait_for_pool(stack.service(), "in_flight", 1).await?;
    replica.release_all();
    expect_success([stream]).await?;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 1).await?;
    admin::wait_until_idle(stack.service()).await
}

#[tokio::test]
async fn an_envoy_that_asks_on_both_paths_gets_one_decision() -> anyhow::Result<()> {
    const REQUESTS: u64 = 5;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("decision-stream-twice", &[&replica], 8)
        .envoy(|document| envoy::always_run_filter(document, "isotherm.ext_proc"));
    let stack = start(stack).await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..REQUESTS {
        let body = chat(&format!("number {number}"));
        client.chat("s", &body).await?.success()?;
    }
    assert_eq!(external_requests(&stack).await?, REQUESTS);
    admin::wait_for_pool(stack.service(), "counters/arrived", REQUESTS).await?;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", REQUESTS).await?;
    admin::wait_for_log(stack.service(), "costs twice").await
}
