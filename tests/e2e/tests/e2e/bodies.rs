//! Bodies of any size pass, with Envoy's default limit on what it buffers.

use isotherm_e2e::{Answer, Client, MODEL, Upstream, admin, chat, scripted, turn};
use isotherm_harness::Stack;
use reqwest::RequestBuilder;

const LARGE_BYTES: usize = 30 << 20;
/// What Envoy allows unless told otherwise.
const BUFFER_LIMIT_DEFAULT_BYTES: u64 = 1 << 20;

/// An image-laden prompt would be of that size. The text has an escape in it now and then, as real ones do.
fn large_body() -> String {
    let sentence = "It was a \\\"warm\\\" day in the far north, and nobody knew why.\\n";
    let text = sentence.repeat(LARGE_BYTES / sentence.len() + 1);
    format!(
        r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

fn post(stack: &Stack, client: &Client, body: String) -> anyhow::Result<RequestBuilder> {
    let limit = isotherm_harness::Document::read(&stack.directory().join("envoy.json"))?;
    let limit = limit
        .get("static_resources/listeners/name=llm/per_connection_buffer_limit_bytes")?
        .as_u64();
    assert_eq!(limit, Some(BUFFER_LIMIT_DEFAULT_BYTES));
    let request = client.post("/v1/chat/completions", &serde_json::Value::Null);
    Ok(request.body(body))
}

#[tokio::test]
async fn a_body_of_30_mb_passes() -> anyhow::Result<()> {
    let _turn = turn::shared().await?;
    let replica = Upstream::start("a").await?;
    let stack = scripted("large-body", &[&replica], 4).start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = large_body();

    let answer = Answer::to(post(&stack, &client, body.clone())?).await?;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = replica.seen();
    assert!(seen[0].body == body, "the body arrived changed");
    Ok(())
}

#[tokio::test]
async fn a_body_of_30_mb_passes_after_its_request_was_queued() -> anyhow::Result<()> {
    let _turn = turn::shared().await?;
    let replica = Upstream::start("a").await?;
    let stack = scripted("large-queued", &[&replica], 1).start().await?;
    let client = Client::new(&stack.url(""))?;
    replica.next(isotherm_e2e::Action::Hold);
    let first = tokio::spawn(Answer::to(
        client.post("/v1/chat/completions", &chat("first")),
    ));
    replica.holds(1).await?;

    let body = large_body();
    let large = tokio::spawn(Answer::to(post(&stack, &client, body.clone())?));
    admin::becomes(stack.service(), "queue_length", 1).await?;
    replica.let_go(1);

    assert_eq!(first.await??.status, 200);
    let answer = large.await??;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(replica.seen()[1].body == body, "the body arrived changed");
    Ok(())
}
