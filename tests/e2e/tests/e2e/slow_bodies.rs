//! Bodies that come slowly or not at all: no request is decided before its body is there, and the time in the queue does not
//! count.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use isotherm_e2e::bodies::{chat_of, send_head, trickle};
use isotherm_e2e::{
    Action, Client, GatewayShape, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted,
};
use isotherm_harness::{Document, Stack, StackBuilder, envoy, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const FILTER: &str = "isotherm.request";
const TIMEOUTS: &str = "wasmcustom.isotherm_filter_body_timeouts";
const ACTIVE: &str = "http.llm.downstream_rq_active";
const MANAGER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";
/// Time that a body may take in tests that wait for its end.
const BODY_TIMEOUT_MS: u64 = 400;
/// Headers of bodies that the filter cannot read, and of one that it can.
const BODIES: [&str; 4] = [
    "content-type: application/json\r\ncontent-encoding: gzip",
    "content-type: text/plain",
    "content-type: application/octet-stream",
    "content-type: application/json",
];

fn without_decision_stream(document: &mut Document) -> anyhow::Result<()> {
    envoy::edit_filter(document, FILTER, |filter| {
        filter.remove("decision_stream").map(drop)
    })
}

/// Bounds the time of bodies in the filter.
fn with_body_timeout(stack: StackBuilder) -> StackBuilder {
    stack.envoy(|document| {
        envoy::edit_filter(document, FILTER, |filter| {
            filter.set("body_timeout_ms", BODY_TIMEOUT_MS)
        })
    })
}

async fn read_response(mut stream: TcpStream) -> anyhow::Result<String> {
    let mut response = Vec::new();
    timeout(WAIT_MAX, stream.read_to_end(&mut response)).await??;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Checks that a response is a 408 in OpenAI's format.
fn check_late(response: &str) -> anyhow::Result<()> {
    let (head, body) = response.split_once("\r\n\r\n").context("no body")?;
    ensure!(head.starts_with("HTTP/1.1 408 "), "{head}");
    ensure!(head.contains("content-type: application/json"), "{head}");
    let body: Value = serde_json::from_str(body)?;
    ensure!(body["error"]["code"] == json!("body_timeout"), "{body}");
    ensure!(body["error"]["message"].is_string(), "{body}");
    Ok(())
}

async fn wait_for_active(stack: &Stack, count: u64) -> anyhow::Result<()> {
    wait_until(WAIT_MAX, "Envoy has the requests", async || {
        stack
            .envoy()
            .stat(ACTIVE)
            .await
            .is_ok_and(|active| active == count)
    })
    .await
}

async fn arrived(stack: &Stack) -> anyhow::Result<u64> {
    admin::pool_number(stack.service(), "counters/arrived").await
}

#[tokio::test]
async fn requests_without_their_bodies_reach_neither_service_nor_replica() -> anyhow::Result<()> {
    const HEADS: usize = 40;
    let _permit = permit::shared().await?;
    for has_stream in [true, false] {
        let replica = ScriptedReplica::start("a").await?;
        // Without the hold, two of the heads would take both places of the replica.
        let mut stack = scripted("slow-heads", &[&replica], 2);
        if !has_stream {
            stack = stack.envoy(without_decision_stream);
        }
        let stack = stack.start().await?;
        let client = Client::new(&stack.url(""))?;
        let body = chat("late").to_string();

        let mut heads = Vec::new();
        for headers in BODIES.iter().cycle().take(HEADS) {
            heads.push(send_head(stack.envoy().address(), headers, body.len()).await?);
        }
        wait_for_active(&stack, HEADS as u64).await?;
        client.chat("s", &chat("whole")).await?.success()?;
        assert_eq!(arrived(&stack).await?, 1, "only a whole request arrives");
        assert_eq!(replica.received().len(), 1);

        for mut stream in heads {
            stream.write_all(body.as_bytes()).await?;
            let response = read_response(stream).await?;
            assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        }
        assert_eq!(arrived(&stack).await?, 1 + HEADS as u64);
        admin::wait_until_idle(stack.service()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_trickles_gets_a_408_and_reaches_no_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_body_timeout(scripted("slow-trickle", &[&replica], 8));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    for (count, headers) in (1..).zip(BODIES) {
        let stream = send_head(stack.envoy().address(), headers, 1_000).await?;
        check_late(&trickle(stream).await?)?;
        assert_eq!(stack.envoy().stat(TIMEOUTS).await?, count);
    }
    assert_eq!(arrived(&stack).await?, 0);
    assert!(replica.received().is_empty());
    wait_for_active(&stack, 0).await?;
    client.chat("s", &chat("whole")).await?.success()?;
    Ok(())
}

#[tokio::test]
async fn a_body_that_trickles_to_a_gateway_without_the_filter_gets_a_408() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replica = ScriptedReplica::start("a").await?;
        let stack = scripted(&format!("slow-{shape:?}").to_lowercase(), &[&replica], 8)
            .envoy(move |document| shape.apply(document))
            .service(|config| {
                config.set("ext_proc", json!({ "body_timeout_ms": BODY_TIMEOUT_MS }))
            });
        let stack = stack.start().await?;
        for headers in BODIES {
            let stream = send_head(stack.envoy().address(), headers, 1_000).await?;
            let response = trickle(stream).await?;
            check_late(&response).with_context(|| format!("{shape:?} {headers}: {response}"))?;
        }
        assert_eq!(arrived(&stack).await?, 0, "{shape:?}");
        assert!(replica.received().is_empty(), "{shape:?}");
        let labels = [("result", "body_timeout")];
        let requests = "isotherm_requests_total";
        let late = admin::metric(stack.service(), requests, &labels).await?;
        assert_eq!(late, Some(BODIES.len() as f64), "{shape:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_queued_longer_than_a_body_may_take_is_served() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_body_timeout(scripted("slow-queue", &[&replica], 1));
    let stack = stack.start().await?;
    replica.push_action(Action::Hold);
    let client = Client::new(&stack.url(""))?;
    let first = client.spawn_chat("first");
    replica.wait_until_holding(1).await?;
    let body = chat("queued").to_string();
    let mut queued = Vec::new();
    for headers in BODIES {
        let mut stream = send_head(stack.envoy().address(), headers, body.len()).await?;
        stream.write_all(body.as_bytes()).await?;
        queued.push(stream);
    }
    admin::wait_for_pool(stack.service(), "queue_length", BODIES.len() as u64).await?;
    tokio::time::sleep(Duration::from_millis(4 * BODY_TIMEOUT_MS)).await;
    assert_eq!(stack.envoy().stat(TIMEOUTS).await?, 0);
    replica.release(1);
    first.await??.success()?;
    for stream in queued {
        let response = read_response(stream).await?;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    }
    Ok(())
}

#[tokio::test]
async fn a_long_upload_at_a_modest_rate_passes() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_body_timeout(scripted("slow-upload", &[&replica], 8));
    let stack = stack.start().await?;
    let body = chat_of(400 << 10);
    let mut stream = send_head(stack.envoy().address(), BODIES[3], body.len()).await?;
    for piece in body.as_bytes().chunks(20 << 10) {
        stream.write_all(piece).await?;
        tokio::time::sleep(Duration::from_millis(BODY_TIMEOUT_MS / 4)).await;
    }
    let response = read_response(stream).await?;
    assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
    assert!(replica.received()[0].body == body);
    Ok(())
}

/// The shipped files bound the rest of a body that is longer than the filter holds by Envoy's own timer.
#[tokio::test]
async fn the_request_timeout_of_envoy_counts_the_body_and_not_the_queue() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("slow-envoy", &[&replica], 1).envoy(|document| {
        let time = format!("{}s", BODY_TIMEOUT_MS as f64 / 1_000.0);
        document.set(&format!("{MANAGER}/request_timeout"), time)?;
        envoy::edit_filter(document, FILTER, |filter| filter.set("body_timeout_ms", 0))
    });
    let stack = stack.start().await?;
    replica.push_action(Action::Hold);
    let client = Client::new(&stack.url(""))?;
    let first = client.spawn_chat("first");
    replica.wait_until_holding(1).await?;
    let queued = client.spawn_chat("queued");
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;

    let stream = send_head(stack.envoy().address(), BODIES[3], 1_000).await?;
    let response = trickle(stream).await?;
    assert!(response.starts_with("HTTP/1.1 408 "), "{response}");
    assert!(!response.contains("body_timeout"), "{response}");

    replica.release(1);
    first.await??.success()?;
    queued.await??.success()?;
    Ok(())
}
