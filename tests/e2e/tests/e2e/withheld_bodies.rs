//! An Envoy without `allow_on_headers_stop_iteration`, as Envoy Gateway and Istio's WasmPlugin configure it: it withholds
//! the body of a request that the filter holds.

use std::time::Duration;

use isotherm_e2e::bodies::{chat_of, check_all_sizes, send_body, send_with_pause};
use isotherm_e2e::{Action, Client, ScriptedReplica, admin, permit, scripted};
use isotherm_harness::{Document, Stack, StackBuilder, WAIT_MAX, envoy, wait_until};
use serde_json::{Value, json};

const FILTER: &str = "isotherm.request";
const FIELD: &str = "allow_on_headers_stop_iteration";
/// Counts requests whose prompt the filter could not read.
const WITHHELD: &str = "wasmcustom.isotherm_filter_skipped_body_withheld";
const EXTERNAL: &str = "http.llm.ext_proc.isotherm.streams_started";
/// Requests on one worker after which the filter knows its Envoy.
const FIRST_REQUESTS: u64 = 2;

fn without_the_field(stack: StackBuilder) -> StackBuilder {
    let path = format!("config/{FIELD}");
    stack
        .workers(1)
        .envoy(move |document| envoy::set_in_filter(document, FILTER, &path, &json!(false)))
}

fn without_decision_stream(document: &mut Document) -> anyhow::Result<()> {
    envoy::edit_filter(document, FILTER, |filter| {
        filter.remove("decision_stream").map(drop)
    })
}

/// Number of log lines that name the missing field.
fn errors(stack: &Stack) -> usize {
    stack.envoy().process().log().matches(FIELD).count()
}

#[tokio::test]
async fn with_ext_proc_bodies_of_every_size_pass_from_the_first_request_on() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("withheld-ext-proc", &[&replica], 8).envoy(without_decision_stream);
    let stack = without_the_field(stack).start().await?;
    let client = Client::new(&stack.url(""))?;

    check_all_sizes(&client, &replica).await?;
    check_all_sizes(&client, &replica).await?;

    assert_eq!(errors(&stack), 1);
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 8);
    assert_eq!(stack.envoy().stat(EXTERNAL).await?, 8);
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 8).await
}

#[tokio::test]
async fn with_a_decision_stream_it_decides_by_the_headers() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = without_the_field(scripted("withheld-stream", &[&replica], 8));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    stack.envoy().wait_for_decision_streams(2).await?;

    check_all_sizes(&client, &replica).await?;
    check_all_sizes(&client, &replica).await?;

    assert_eq!(errors(&stack), 1);
    assert_eq!(stack.envoy().stat(WITHHELD).await?, 8);
    assert_eq!(stack.envoy().stat(EXTERNAL).await?, FIRST_REQUESTS);
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 8).await
}

#[tokio::test]
async fn a_request_that_waits_in_the_queue_keeps_its_whole_body() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = without_the_field(scripted("withheld-queue", &[&replica], 1));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    for _ in 0..FIRST_REQUESTS {
        send_body(&client, "s", &chat_of(100)).await?.success()?;
    }
    replica.push_action(Action::Hold);
    let first = client.spawn_chat("first");
    replica.wait_until_holding(1).await?;

    let body = chat_of(30 << 20);
    let large = tokio::spawn({
        let (client, body) = (client.clone(), body.clone());
        async move { send_body(&client, "s", &body).await }
    });
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    replica.release(1);

    first.await??.success()?;
    large.await??.success()?;
    assert!(
        replica
            .received()
            .last()
            .is_some_and(|last| last.body == body)
    );
    Ok(())
}

#[tokio::test]
async fn concurrent_first_requests_on_several_workers_all_pass() -> anyhow::Result<()> {
    const REQUESTS: usize = 40;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = without_the_field(scripted("withheld-many", &[&replica], 64)).workers(2);
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let requests: Vec<_> = (0..REQUESTS)
        .map(|number| client.spawn_chat(&format!("number {number}")))
        .collect();
    isotherm_e2e::expect_success(requests).await?;
    assert_eq!(stack.envoy().stat(WITHHELD).await?, REQUESTS as u64);
    assert!(errors(&stack) <= 2, "one line for each worker");
    Ok(())
}

/// Sends the headers of a request, and its body after a while.
async fn send_slowly(stack: &Stack, pause: Duration) -> anyhow::Result<String> {
    send_with_pause(stack.envoy().address(), &chat_of(1_000), 0, pause).await
}

#[tokio::test]
async fn a_slow_client_is_not_taken_for_a_missing_field() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("withheld-slow", &[&replica], 8).workers(1);
    let stack = stack.start().await?;
    for _ in 0..4 {
        let start = send_slowly(&stack, Duration::from_millis(1_500)).await?;
        assert_eq!(start, "HTTP/1.1 200");
    }
    let client = Client::new(&stack.url(""))?;
    send_body(&client, "s", &chat_of(1_000)).await?.success()?;
    let complete = stack
        .envoy()
        .stat("wasmcustom.isotherm_filter_prompts_complete");
    assert_eq!(complete.await?, 5, "the filter waits for the prompts");
    assert_eq!(errors(&stack), 0);
    // From then on, the filter waits for slow clients as well.
    let start = send_slowly(&stack, Duration::from_millis(1_500)).await?;
    assert_eq!(start, "HTTP/1.1 200");
    let complete = stack
        .envoy()
        .stat("wasmcustom.isotherm_filter_prompts_complete");
    assert_eq!(complete.await?, 6);
    Ok(())
}

#[tokio::test]
async fn a_slow_client_passes_without_the_field() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = without_the_field(scripted("withheld-slow-absent", &[&replica], 8));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    for _ in 0..3 {
        let start = send_slowly(&stack, Duration::from_millis(300)).await?;
        assert_eq!(start, "HTTP/1.1 200");
        send_body(&client, "s", &chat_of(1_000)).await?.success()?;
    }
    assert_eq!(errors(&stack), 1);
    Ok(())
}

/// The configuration that Envoy Gateway sends for a policy without `config`.
#[tokio::test]
async fn without_a_configuration_the_filter_serves_external_processing() -> anyhow::Result<()> {
    const CONFIGURATION: &str = "config/configuration/value";
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("no-configuration", &[&replica], 8).envoy(|document| {
        envoy::add_response_role(document)?;
        for filter in [FILTER, envoy::RESPONSE] {
            envoy::set_in_filter(document, filter, CONFIGURATION, &Value::from(""))?;
        }
        Ok(())
    });
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = chat_of(220 << 10);
    for _ in 0..3 {
        send_body(&client, "s", &body).await?.success()?;
    }
    assert_eq!(stack.envoy().stat(EXTERNAL).await?, 3);
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 3).await?;
    let usage = "wasmcustom.isotherm_filter_responses_with_usage";
    wait_until(WAIT_MAX, "the usage of every response", || async {
        stack
            .envoy()
            .stat(usage)
            .await
            .is_ok_and(|count| count == 3)
    })
    .await
}

#[tokio::test]
async fn a_malformed_configuration_is_refused_with_an_example() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("bad-configuration", &[&replica], 8).envoy(|document| {
        let value = Value::from("role: request");
        envoy::set_in_filter(document, FILTER, "config/configuration/value", &value)
    });
    let error = format!("{:#}", stack.start().await.map(drop).unwrap_err());
    assert!(
        error.contains("a JSON object is needed, such as"),
        "{error}"
    );
    Ok(())
}
