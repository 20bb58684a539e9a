//! Waiting: in order, within bounds, and only as long as somebody waits for the answer.

use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use isotherm_e2e::{
    Action, Client, Http2Client, HttpResponse, MODEL, ScriptedReplica, WAIT_MAX, admin, as_shipped,
    chat, permit, scripted,
};
use isotherm_harness::wait_until;
use serde_json::json;
use tokio::task::JoinHandle;

#[tokio::test]
async fn a_thousand_waiting_requests_are_served_in_the_order_of_their_arrival() -> anyhow::Result<()>
{
    const WAITING: usize = 1_000;
    let _permit = permit::exclusive().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("thousand", &[&replica], 1)
        .service(|config| config.set("pools/0/queue", json!({ "wait_ms_max": 110_000 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let first = ask(&client, "first");
    replica.wait_until_holding(1).await?;

    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    let mut waiting = Vec::new();
    for number in 0..WAITING {
        let body = chat(&format!("number {number}")).to_string();
        let session = format!("session-{}", number % 7);
        let headers = [("x-session-id", session.as_str())];
        waiting.push(tokio::spawn(connection.post(
            "/v1/chat/completions",
            &headers,
            body,
        )?));
        // The next one is sent only when this one is known to wait: so the order of arrival is beyond doubt.
        admin::becomes(stack.service(), "queue_length", number as u64 + 1).await?;
    }
    replica.release_all();

    assert_eq!(first.await??.status, 200);
    for answer in try_join_all(waiting).await? {
        assert_eq!(answer?.status, 200);
    }
    let served: Vec<String> = replica
        .received()
        .iter()
        .skip(1)
        .map(|request| {
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
            body["messages"][0]["content"]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        })
        .collect();
    let arrived: Vec<String> = (0..WAITING)
        .map(|number| format!("number {number}"))
        .collect();
    assert_eq!(served, arrived);
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_frees_its_place() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("abort-waiting", &[&replica], 1).start().await?;
    let client = Client::new(&stack.url(""))?;
    let served = ask(&client, "served");
    replica.wait_until_holding(1).await?;
    let patient = ask(&client, "patient");
    admin::becomes(stack.service(), "queue_length", 1).await?;
    let impatient = ask(&client, "impatient");
    admin::becomes(stack.service(), "queue_length", 2).await?;

    impatient.abort();

    admin::becomes(stack.service(), "queue_length", 1).await?;
    replica.release_all();
    assert_eq!(served.await??.status, 200);
    assert_eq!(patient.await??.status, 200);
    let gone = admin::metric(stack.service(), "isotherm_aborted_total").await?;
    assert!((gone - 1.0).abs() < 0.1, "{gone} aborted");
    assert_eq!(
        replica.received().len(),
        2,
        "nobody asked the replica for the third"
    );
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_away_in_mid_stream_frees_its_place() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("abort-streaming", &[&replica], 1).start().await?;
    let client = Client::new(&stack.url(""))?;
    replica.push_action(Action::Stream);
    let response = client
        .post("/v1/chat/completions", &chat("streamed"))
        .send()
        .await?;
    let mut body = response.bytes_stream();
    let piece = body.next().await.transpose()?;
    assert!(piece.is_some_and(|piece| piece.starts_with(b"data: ")));
    admin::replica_becomes(stack.service(), replica.address(), "outstanding", 1).await?;
    let next = ask(&client, "next");
    admin::becomes(stack.service(), "queue_length", 1).await?;

    drop(body);

    assert_eq!(next.await??.status, 200);
    replica.wait_until_holding(0).await?; // Envoy has told the replica, too
    admin::replica_becomes(stack.service(), replica.address(), "outstanding", 0).await?;
    admin::becomes(stack.service(), "in_flight", 0).await
}

#[tokio::test]
async fn a_full_queue_refuses_with_503_and_says_when_to_come_back() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("queue-full", &[&replica], 1)
        .service(|config| config.set("pools/0/queue", json!({ "length_max": 2 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let mut served = vec![ask(&client, "hello")];
    replica.wait_until_holding(1).await?;
    for length in 1..=2 {
        served.push(ask(&client, "hello"));
        admin::becomes(stack.service(), "queue_length", length).await?;
    }

    let refused = ask(&client, "hello").await??;

    is_refusal(&refused, "queue_full")?;
    replica.release_all();
    for answer in try_join_all(served).await? {
        assert_eq!(answer?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_waited_too_long_is_refused_the_same_way() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted("waited-too-long", &[&replica], 1)
        // Longer than Envoy's message timeout, which the service has extended for it.
        .service(|config| config.set("pools/0/queue", json!({ "wait_ms_max": 1_500 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let served = ask(&client, "hello");
    replica.wait_until_holding(1).await?;

    let refused = ask(&client, "hello").await??;

    is_refusal(&refused, "waited_too_long")?;
    assert_eq!(admin::queue_length(stack.service()).await?, 0);
    replica.release_all();
    assert_eq!(served.await??.status, 200);
    Ok(())
}

/// Asks for a chat, whatever else happens meanwhile.
fn ask(client: &Client, prompt: &str) -> JoinHandle<anyhow::Result<HttpResponse>> {
    tokio::spawn(HttpResponse::to(
        client.post("/v1/chat/completions", &chat(prompt)),
    ))
}

fn is_refusal(answer: &HttpResponse, code: &str) -> anyhow::Result<()> {
    assert_eq!(answer.status, 503, "{}", answer.text());
    let seconds: u64 = answer.header("retry-after").unwrap_or_default().parse()?;
    assert!(
        (1..=3_600).contains(&seconds),
        "come back after {seconds} s"
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let error = &answer.json()?["error"];
    assert_eq!(error["code"], code, "{error}");
    assert_eq!(error["type"], "server_error", "{error}");
    assert!(error["message"].is_string(), "{error}");
    Ok(())
}

/// What waits longer than Envoy's own patience with a service (half a second) was extended, and is not passed on.
#[tokio::test]
async fn waiting_outlasts_envoys_message_timeout() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = as_shipped("outlasts", &[&replica], 1).start().await?;
    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    let body = || json!({ "model": MODEL, "prompt": "warm", "max_tokens": 1 }).to_string();
    let served = tokio::spawn(connection.post("/v1/completions", &[], body())?);
    replica.wait_until_holding(1).await?;
    let waited = tokio::spawn(connection.post("/v1/completions", &[], body())?);
    let long_enough = 2_000;
    wait_until(WAIT_MAX, "two seconds in the queue", || async {
        let oldest = admin::pool_number(stack.service(), "oldest_wait_ms").await;
        oldest.is_ok_and(|wait_ms| wait_ms >= long_enough)
    })
    .await?;
    assert_eq!(replica.received().len(), 1, "the second still waits");

    replica.release_all();

    assert_eq!(served.await??.status, 200);
    assert_eq!(waited.await??.status, 200);
    Ok(())
}
