//! The filter's decision stream: requests are asked about on it, and by external processing when it cannot be.

use isotherm_e2e::{
    Action, Client, HttpResponse, ScriptedReplica, WAIT_MAX, admin, as_shipped, chat, permit,
};
use isotherm_harness::{Stack, StackBuilder, envoy, wait_until};

/// Of the stacks here.
const WORKERS: u16 = 2;
/// Each worker has a decision stream, and Envoy's main thread, on which there is never a request.
const STREAMS: f64 = 3.0;

async fn started(name: &str, replicas: &[&ScriptedReplica]) -> anyhow::Result<Stack> {
    good(as_shipped(name, replicas, 8)).await
}

async fn good(stack: StackBuilder) -> anyhow::Result<Stack> {
    let stack = stack.workers(WORKERS).start().await?;
    wait_for_all_streams(&stack).await?;
    Ok(stack)
}

/// Waits until every thread of Envoy has its decision stream.
async fn wait_for_all_streams(stack: &Stack) -> anyhow::Result<()> {
    wait_until(WAIT_MAX, "a decision stream for each thread", || async {
        let streams = admin::metric(stack.service(), "isotherm_decision_streams").await;
        streams.is_ok_and(|streams| (streams - STREAMS).abs() < 0.5)
    })
    .await
}

/// How often external processing was asked.
async fn external(stack: &Stack) -> anyhow::Result<u64> {
    stack
        .envoy()
        .stat("http.llm.ext_proc.isotherm.streams_started")
        .await
}

#[tokio::test]
async fn what_is_decided_on_the_decision_stream_is_nobody_elses_and_its_end_is_known()
-> anyhow::Result<()> {
    const REQUESTS: u64 = 20;
    let _permit = permit::shared().await?;
    let [a, b] = [
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    ];
    let stack = started("decision-stream", &[&a, &b]).await?;
    let client = Client::new(&stack.url(""))?;
    let before = external(&stack).await?;
    for number in 0..REQUESTS {
        let body = chat(&format!("number {number}"));
        let answer = client.chat(&format!("s{number}"), &body).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(external(&stack).await?, before);
    admin::becomes(stack.service(), "counters/finished_ok", REQUESTS).await?;
    admin::becomes(stack.service(), "in_flight", 0).await?;
    for request in a.received().iter().chain(&b.received()) {
        let internal: Vec<_> = request
            .headers
            .keys()
            .filter(|name| name.as_str().starts_with("x-isotherm-"))
            .collect();
        assert_eq!(internal, ["x-isotherm-session", "x-isotherm-cluster"]);
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_is_told_on_the_decision_stream() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = started("decision-stream-gone", &[&replica]).await?;
    let client = Client::new(&stack.url(""))?;
    let request = client.post("/v1/chat/completions", &chat("hello"));
    let asked = tokio::spawn(HttpResponse::to(request));
    replica.wait_until_holding(1).await?;
    admin::becomes(stack.service(), "in_flight", 1).await?;
    asked.abort();
    admin::becomes(stack.service(), "in_flight", 0).await?;
    let gone = admin::metric(stack.service(), "isotherm_aborted_total").await?;
    assert!((gone - 1.0).abs() < 0.1, "{gone} aborted");
    assert_eq!(external(&stack).await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_decision_stream_that_broke_is_opened_again() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let mut stack = started("decision-stream-again", &[&replica]).await?;
    let client = Client::new(&stack.url(""))?;
    stack.service_mut().kill()?;
    let answer = client.chat("s", &chat("while nobody decides")).await?;
    assert_eq!(answer.status, 200);
    stack.service_mut().start().await?;
    wait_for_all_streams(&stack).await?;
    let before = external(&stack).await?;
    let answer = client.chat("s", &chat("again")).await?;
    assert_eq!(answer.status, 200);
    assert_eq!(external(&stack).await?, before);
    admin::becomes(stack.service(), "counters/finished_ok", 1).await
}

#[tokio::test]
async fn a_body_that_cannot_be_held_back_is_external_processings() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = started("decision-stream-large", &[&replica]).await?;
    let client = Client::new(&stack.url(""))?;
    let before = external(&stack).await?;
    let body = chat(&"A prompt that is longer than Envoy may buffer. ".repeat(120_000));
    let answer = client.chat("s", &body).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(external(&stack).await?, before + 1);
    Ok(())
}

#[tokio::test]
async fn an_envoy_that_asks_twice_gets_one_decision() -> anyhow::Result<()> {
    const REQUESTS: u64 = 5;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = as_shipped("decision-stream-twice", &[&replica], 8).envoy(|document| {
        envoy::always_run_filter(document, "isotherm.ext_proc")?;
        envoy::always_run_filter(document, "isotherm.response")
    });
    let stack = good(stack).await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..REQUESTS {
        let body = chat(&format!("number {number}"));
        let answer = client.chat("s", &body).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(external(&stack).await?, REQUESTS);
    admin::becomes(stack.service(), "counters/arrived", REQUESTS).await?;
    admin::becomes(stack.service(), "counters/finished_ok", REQUESTS).await?;
    assert!(stack.service().process()?.log().contains("costs twice"));
    Ok(())
}
