//! Stored responses: only the engine that made one has it, so later requests that name it go to that engine.

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Action, Client, HttpResponse, MODEL, ScriptedReplica};
use isotherm_e2e::{admin, engines, permit, scripted, send};
use isotherm_harness::{Stack, StackBuilder};
use reqwest::Method;
use serde_json::{Value, json};

const PATH: &str = "/v1/responses";
const CONVERSATIONS: usize = 6;

/// Engines among which requests without a preference take turns, and an Envoy with two workers. Its decision streams are up:
/// the service learns the ids of responses on them.
async fn start(stack: StackBuilder) -> anyhow::Result<Stack> {
    let stack = stack.service(|config| config.set("pools/0/policy", "round_robin"));
    let stack = stack.workers(2).start().await?;
    stack.envoy().wait_for_decision_streams(3).await?;
    Ok(stack)
}

/// A turn of a conversation, which continues a response if one is named.
fn turn(text: &str, previous: Option<&str>, is_streamed: bool) -> Value {
    json!({ "model": MODEL, "input": text, "previous_response_id": previous, "max_output_tokens": 4, "stream": is_streamed })
}

/// The id of a response: a whole one, or that of the event which opens a stream.
fn id_of(response: &HttpResponse) -> anyhow::Result<String> {
    let text = response.text();
    let from = text.find("resp_").context("the response has no id")?;
    let id = text[from..].split('"').next();
    Ok(id.unwrap_or_default().to_owned())
}

/// Continues conversations, whole or streamed, and reads what the engines have stored.
async fn check_conversations(stack: &Stack) -> anyhow::Result<()> {
    let client = Client::new(&stack.url(""))?;
    for number in 0..CONVERSATIONS {
        let text = format!("Question {number}. ").repeat(20);
        let mut previous: Option<String> = None;
        for is_streamed in [false, true, false] {
            let body = turn(&text, previous.as_deref(), is_streamed);
            let response = send(client.post(PATH, &body)).await?.success()?;
            let id = id_of(&response)?;
            let stored = send(client.get(&format!("{PATH}/{id}"))).await?.success()?;
            ensure!(stored.json()?["id"] == json!(id), "{}", stored.text());
            let cancel = client.post(&format!("{PATH}/{id}/cancel"), &json!({}));
            let cancelled = send(cancel).await?;
            ensure!(cancelled.status == 400, "{}", cancelled.text());
            ensure!(
                cancelled.text().contains("synchronous"),
                "{}",
                cancelled.text()
            );
            previous = Some(id);
        }
    }
    Ok(())
}

#[tokio::test]
async fn requests_that_name_a_stored_response_go_to_the_engine_that_has_it() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start(engines("stored", 3, 50.0)).await?;
    check_conversations(&stack).await
}

#[tokio::test]
async fn a_response_that_no_engine_has_gets_the_404_of_an_engine() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start(engines("stored-unknown", 2, 50.0)).await?;
    let client = Client::new(&stack.url(""))?;
    let requests = [
        client.post(PATH, &turn("hello", Some("resp_unknown"), false)),
        client.get(&format!("{PATH}/resp_unknown")),
        client.post(&format!("{PATH}/resp_unknown/cancel"), &json!({})),
    ];
    for request in requests {
        let response = send(request).await?;
        ensure!(response.status == 404, "{}", response.text());
        let error = &response.json()?["error"];
        ensure!(error["param"] == "response_id", "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_waits_for_the_full_replica_that_has_its_response() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let stack = start(scripted("stored-full", &[&a, &b], 1)).await?;
    let client = Client::new(&stack.url(""))?;
    let first = send(client.post(PATH, &turn("hello", None, false))).await?;
    let id = id_of(&first)?;
    let (holder, other) = if id == "resp_a" { (&a, &b) } else { (&b, &a) };
    holder.set_action(Action::Hold);
    let body = turn("again", Some(&id), false);
    let held = tokio::spawn(send(client.post(PATH, &body)));
    holder.wait_until_holding(1).await?;
    let waiting = tokio::spawn(send(client.post(PATH, &body)));
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    for (method, below) in [
        (Method::GET, ""),
        (Method::GET, "/input_items?limit=2"),
        (Method::DELETE, ""),
    ] {
        holder.push_action(Action::Respond);
        let url = stack.url(&format!("{PATH}/{id}{below}"));
        let request = reqwest::Client::builder().no_proxy().build()?;
        let response = send(request.request(method, url)).await?.success()?;
        ensure!(
            response.served_by() == Some(holder.name()),
            "{:?}",
            response.headers
        );
    }
    ensure!(other.received().is_empty(), "{:?}", other.received());
    holder.release(1);
    held.await??.success()?;
    holder.wait_until_holding(1).await?;
    holder.release(1);
    waiting.await??.success()?;
    ensure!(other.received().is_empty(), "{:?}", other.received());
    Ok(())
}
