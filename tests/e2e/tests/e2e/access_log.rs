//! One request in Envoy's access log and in the service's log, by the same id.

use anyhow::Context as _;
use isotherm_e2e::{Client, admin, engines, permit, send};
use isotherm_harness::{MODEL, Stack, StackBuilder, WAIT_MAX, envoy, wait_for};
use serde_json::{Value, json};

const SPEED: f64 = 20.0;

/// Waits for a line of the access log, by its number.
async fn logged(stack: &Stack, number: usize) -> anyhow::Result<Value> {
    wait_for(
        WAIT_MAX,
        &format!("line {number} of the access log"),
        || async {
            let log = stack.envoy().process().log();
            let mut lines = log.lines().filter(|line| line.starts_with('{'));
            Ok(lines.nth(number).map(serde_json::from_str).transpose()?)
        },
    )
    .await
}

/// Waits for a line of the service's log about a request.
async fn decided(stack: &Stack, id: &str, event: &str) -> anyhow::Result<Value> {
    let service = stack.service().process()?;
    wait_for(WAIT_MAX, &format!("`{event}` in the log"), || async {
        let log = service.log();
        let mut lines = log.lines();
        let is_of = |line: &&str| line.contains(id) && line.contains(event);
        Ok(lines.find(is_of).map(serde_json::from_str).transpose()?)
    })
    .await
}

async fn start(stack: StackBuilder) -> anyhow::Result<Stack> {
    stack
        .log("info,isotherm_ext_proc::frontends=debug")
        .start()
        .await
}

/// Sends one prompt twice, so that the second finds the first in the cache, and checks what both logs say about the second.
async fn check_both_logs(stack: &Stack, has_usage: bool) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    let body = json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "A prompt of some length. ".repeat(200) }],
        "max_tokens": 3,
    });
    send(client.post_chat(&body)).await?.success()?;
    admin::wait_until_idle(stack.service()).await?;
    send(client.post_chat(&body)).await?.success()?;

    let line = logged(stack, 1).await?;
    let text = |name: &str| line.get(name).and_then(Value::as_str);
    let id = text("id").context("no id")?;
    assert_eq!(text("model"), Some(MODEL));
    assert_eq!(text("reason"), Some("prefix"), "{line}");
    assert_eq!(text("queued_ms"), Some("0"), "{line}");
    assert_eq!(text("output_tokens"), has_usage.then_some("3"));
    for name in ["prompt_tokens", "cached_tokens"] {
        let count = text(name).map(str::parse::<u64>).transpose()?;
        assert_eq!(count.is_some_and(|count| count > 0), has_usage, "{line}");
    }
    let replica = text("replica").context("no replica")?;
    let routed = decided(stack, id, "routed").await?;
    assert_eq!(routed["replica"], replica);
    assert_eq!(routed["id"], id);
    let finished = decided(stack, id, "finished").await?;
    assert_eq!(finished["upstream"], replica);
    Ok(())
}

#[tokio::test]
async fn both_logs_name_a_request_of_the_decision_stream_alike() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start(engines("access-log", 2, SPEED)).await?;
    stack.envoy().wait_for_decision_streams(3).await?;
    check_both_logs(&stack, true).await
}

#[tokio::test]
async fn both_logs_name_a_request_of_external_processing_alike_without_usage() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let without_stream = engines("access-log-ext-proc", 2, SPEED).envoy(|document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.remove("decision_stream").map(drop)
        })
    });
    let stack = start(without_stream).await?;
    check_both_logs(&stack, false).await
}

#[tokio::test]
async fn a_request_that_a_client_leaves_is_logged_with_its_decision() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = isotherm_e2e::ScriptedReplica::start("a").await?;
    replica.set_action(isotherm_e2e::Action::Hold);
    let stack = start(isotherm_e2e::scripted("access-log-abort", &[&replica], 8)).await?;
    let client = Client::new(&stack.url(""))?;
    let response = client.spawn_chat("hello");
    replica.wait_until_holding(1).await?;

    response.abort();

    let line = logged(&stack, 0).await?;
    assert!(line["reason"].is_string(), "{line}");
    assert_eq!(line["model"], MODEL);
    Ok(())
}
