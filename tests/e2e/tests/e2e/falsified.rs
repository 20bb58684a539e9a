//! Clients that show the router another prompt than the engine: what others use stays as it is.

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Client, MODEL, admin, engines, permit, send};
use isotherm_harness::Stack;
use reqwest::Method;
use serde_json::{Value, json};

const REPLICAS: usize = 3;
const VICTIMS: usize = 8;
const REQUESTS: usize = 60;

async fn start(name: &str) -> anyhow::Result<Stack> {
    engines(name, REPLICAS, 50.0).start().await
}

pub(crate) fn victim(number: usize) -> Value {
    let topic = format!("You are assistant {number}, and you know where it is warm. ").repeat(60);
    chat(&json!({ "role": "user", "content": topic }))
}

fn chat(message: &Value) -> Value {
    json!({ "model": MODEL, "messages": [message], "max_tokens": 1 })
}

/// A text of about 1 KB, another one for each number.
pub(crate) fn claim(number: usize) -> String {
    format!("Claim {number} of a prompt that no engine computes. ").repeat(21)
}

/// Sends the prompts of the victims, and checks that the router has recorded them.
async fn send_victims(stack: &Stack, client: &Client) -> anyhow::Result<()> {
    for number in 0..VICTIMS {
        send(client.post_chat(&victim(number))).await?.success()?;
    }
    let sent = u64::try_from(VICTIMS)?;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", sent).await?;
    check_victims(stack, "before the attack").await
}

/// Checks that the mean match of the victims' prompts is what they had, within 1 %.
async fn check_victims(stack: &Stack, after: &str) -> anyhow::Result<()> {
    let mut sum = 0.0;
    for number in 0..VICTIMS {
        let request = json!({ "path": "/v1/chat/completions", "body": victim(number) });
        let explained = stack
            .service()
            .admin_request(Method::POST, "/api/explain", Some(&request))
            .await?;
        let candidates = explained["candidates"].as_array().context("no list")?;
        let matched = candidates
            .iter()
            .filter_map(|one| one["matched_share"].as_f64());
        sum += matched.fold(0.0, f64::max);
    }
    let mean = sum / 8.0;
    // The bytes behind the last whole block match nothing.
    ensure!(mean > 0.9, "{after}: {mean} of the prompts is left");
    Ok(())
}

/// Sends a tiny request twice for each claim, and waits until the router has seen their ends.
async fn attack(
    stack: &Stack,
    client: &Client,
    body: impl Fn(&str) -> String,
) -> anyhow::Result<()> {
    for number in 0..REQUESTS {
        let body = body(&claim(number / 2));
        let request = client.post_chat(&Value::Null).body(body);
        send(request).await?.success()?;
    }
    let ended = u64::try_from(VICTIMS + REQUESTS)?;
    admin::wait_for_pool(stack.service(), "counters/finished_ok", ended).await
}

#[tokio::test]
async fn a_doubled_prompt_changes_no_other_match() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("doubled-prompt").await?;
    let client = Client::new(&stack.url(""))?;
    send_victims(&stack, &client).await?;

    attack(&stack, &client, |claim| {
        format!(
            r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{claim}","c\u006fntent":"hi"}}]}}"#
        )
    })
    .await?;

    check_victims(&stack, "after doubled prompts").await?;
    let false_hits = admin::counter(stack.service(), "isotherm_false_hits_total", &[]).await?;
    ensure!(false_hits == 0, "{false_hits} false hits");
    Ok(())
}

#[tokio::test]
async fn a_claim_that_the_engine_does_not_render_changes_no_other_match() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("unrendered-claim").await?;
    let client = Client::new(&stack.url(""))?;
    send_victims(&stack, &client).await?;

    attack(&stack, &client, |claim| {
        format!(
            r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"hi","note":"{claim}"}}]}}"#
        )
    })
    .await?;

    check_victims(&stack, "after claims that no engine renders").await?;
    let dropped = admin::counter(stack.service(), "isotherm_implausible_usage_total", &[]).await?;
    ensure!(
        dropped == u64::try_from(REQUESTS)?,
        "{dropped} of {REQUESTS}"
    );
    Ok(())
}
