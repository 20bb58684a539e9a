//! The queue: requests leave it in order, its length and waiting times are bounded, and a client that disconnects leaves it.

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use isotherm_e2e::fixture::{scripted_as_shipped, with_detecting_timeouts};
use isotherm_e2e::{
    Action, Client, Http2Client, HttpResponse, MODEL, ScriptedReplica, WAIT_MAX, admin, chat,
    expect_success, permit, scripted,
};
use isotherm_harness::{envoy, wait_until};
use serde_json::json;

#[tokio::test]
async fn a_thousand_queued_requests_are_served_in_order_of_arrival() -> anyhow::Result<()> {
    const QUEUED: usize = 1_000;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("thousand", &[&replica], 1)
        .service(|config| config.set("pools/0/queue", json!({ "wait_ms_max": 600_000 })))
        .envoy(|document| {
            let (filter, setting) = ("isotherm.ext_proc", "max_message_timeout");
            envoy::set_in_filter(document, filter, setting, &json!("600s"))
        })
        .start()
        .await?;
    let first = Client::new(&stack.url(""))?.spawn_chat("first");
    replica.wait_until_holding(1).await?;

    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    let mut queued = Vec::new();
    for number in 0..QUEUED {
        let body = chat(&format!("number {number}")).to_string();
        let session = format!("session-{}", number % 7);
        let headers = [("x-session-id", session.as_str())];
        let response = connection.post("/v1/chat/completions", &headers, body)?;
        queued.push(tokio::spawn(response));
        // The next request follows when this one is queued, so the order of arrival is known.
        admin::wait_for_pool(stack.service(), "queue_length", number as u64 + 1).await?;
    }
    replica.release_all();

    assert_eq!(first.await??.status, 200);
    for response in try_join_all(queued).await? {
        assert_eq!(response?.status, 200);
    }
    let prompt = |body: &[u8]| {
        let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        body["messages"][0]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let received = replica.received();
    let served: Vec<String> = received
        .iter()
        .skip(1)
        .map(|request| prompt(&request.body))
        .collect();
    let arrived: Vec<String> = (0..QUEUED)
        .map(|number| format!("number {number}"))
        .collect();
    assert_eq!(served, arrived);
    Ok(())
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_the_queue() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("abort-queued", &[&replica], 1).start().await?;
    let client = Client::new(&stack.url(""))?;
    let served = client.spawn_chat("served");
    replica.wait_until_holding(1).await?;
    let queued = client.spawn_chat("queued");
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    let aborted = client.spawn_chat("aborted");
    admin::wait_for_pool(stack.service(), "queue_length", 2).await?;

    aborted.abort();

    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    replica.release_all();
    assert_eq!(served.await??.status, 200);
    assert_eq!(queued.await??.status, 200);
    let count = admin::counter(stack.service(), "isotherm_aborted_total", &[]).await?;
    assert_eq!(count, 1);
    assert_eq!(replica.received().len(), 2, "the third reached the replica");
    Ok(())
}

#[tokio::test]
async fn a_client_that_disconnects_in_mid_stream_frees_its_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("abort-streaming", &[&replica], 1).start().await?;
    let client = Client::new(&stack.url(""))?;
    replica.push_action(Action::Stream);
    let response = client.post_chat(&chat("streamed")).send().await?;
    let mut body = response.bytes_stream();
    let chunk = body.next().await.transpose()?;
    assert!(chunk.is_some_and(|chunk| chunk.starts_with(b"data: ")));
    admin::wait_for_replica(stack.service(), replica.address(), "outstanding", 1).await?;
    let next = client.spawn_chat("next");
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;

    drop(body);

    assert_eq!(next.await??.status, 200);
    replica.wait_until_holding(0).await?; // Envoy has disconnected from the replica, too
    admin::wait_for_replica(stack.service(), replica.address(), "outstanding", 0).await?;
    admin::wait_until_idle(stack.service()).await
}

#[tokio::test]
async fn a_full_queue_refuses_with_503_and_retry_after() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("queue-full", &[&replica], 1)
        .service(|config| config.set("pools/0/queue", json!({ "length_max": 2 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let mut served = vec![client.spawn_chat("hello")];
    replica.wait_until_holding(1).await?;
    for length in 1..=2 {
        served.push(client.spawn_chat("hello"));
        admin::wait_for_pool(stack.service(), "queue_length", length).await?;
    }

    let refused = client.chat("s", &chat("hello")).await?;

    assert_refused(&refused, "queue_full")?;
    replica.release_all();
    expect_success(served).await?;
    Ok(())
}

#[tokio::test]
async fn a_request_that_waits_too_long_is_refused_with_503_and_retry_after() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("waited-too-long", &[&replica], 1)
        .service(|config| config.set("pools/0/queue", json!({ "wait_ms_max": 1_500 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let served = client.spawn_chat("hello");
    replica.wait_until_holding(1).await?;

    let refused = client.chat("s", &chat("hello")).await?;

    assert_refused(&refused, "waited_too_long")?;
    assert_eq!(
        admin::pool_number(stack.service(), "queue_length").await?,
        0
    );
    replica.release_all();
    assert_eq!(served.await??.status, 200);
    Ok(())
}

fn assert_refused(response: &HttpResponse, code: &str) -> anyhow::Result<()> {
    assert_eq!(response.status, 503, "{}", response.text());
    let seconds: u64 = response.header("retry-after").unwrap_or_default().parse()?;
    assert!((1..=3_600).contains(&seconds), "retry after {seconds} s");
    assert_eq!(response.header("content-type"), Some("application/json"));
    let error = &response.json()?["error"];
    assert_eq!(error["code"], code, "{error}");
    assert_eq!(error["type"], "server_error", "{error}");
    assert!(error["message"].is_string(), "{error}");
    Ok(())
}

/// The service extends Envoy's message timeout for a queued request. Without the extension Envoy would send the request
/// to the replica after four seconds.
#[tokio::test]
async fn a_queued_request_outlasts_envoys_message_timeout() -> anyhow::Result<()> {
    const QUEUED_MS: u64 = 6_000;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = with_detecting_timeouts(scripted_as_shipped("outlasts", &[&replica], 1));
    let stack = stack.start().await?;
    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    let body = || json!({ "model": MODEL, "prompt": "warm", "max_tokens": 1 }).to_string();
    let served = tokio::spawn(connection.post("/v1/completions", &[], body())?);
    replica.wait_until_holding(1).await?;
    let queued = tokio::spawn(connection.post("/v1/completions", &[], body())?);
    wait_until(WAIT_MAX, "six seconds in the queue", || async {
        let oldest = admin::pool_number(stack.service(), "oldest_wait_ms").await;
        oldest.is_ok_and(|wait_ms| wait_ms >= QUEUED_MS)
    })
    .await?;
    assert_eq!(replica.received().len(), 1, "the second is still queued");

    replica.release_all();

    assert_eq!(served.await??.status, 200);
    assert_eq!(queued.await??.status, 200);
    Ok(())
}
