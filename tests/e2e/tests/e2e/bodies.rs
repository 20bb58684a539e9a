//! Bodies of any size and content pass, with the limits of the shipped file and with Envoy's defaults.

use isotherm_e2e::{Action, Client, MODEL, ScriptedReplica, admin, permit, scripted, send};
use isotherm_harness::{StackBuilder, envoy};
use reqwest::RequestBuilder;
use serde_json::Value;

const LARGE_BYTES: usize = 30 << 20;
/// The shipped file sets more than Envoy's default of 1 MiB.
const BODY_LIMIT: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm/request_body_buffer_limit";

/// A body of the size of a prompt with images. The text has escapes, as real prompts do.
fn large_body() -> String {
    let sentence = "It was a \\\"warm\\\" day in the far north, and the snow melted.\\n";
    let text = sentence.repeat(LARGE_BYTES / sentence.len() + 1);
    format!(
        r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

/// Sets Envoy's default limit on bodies, and the filter's settings that belong to it.
fn with_default_limits(stack: StackBuilder) -> StackBuilder {
    stack.envoy(|document| {
        document.remove(BODY_LIMIT)?;
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.set("request_body_buffer_limit", 0)?;
            filter.set("buffer_bytes_max", 700 << 10)
        })
    })
}

fn post(client: &Client, body: String) -> RequestBuilder {
    client.post_chat(&Value::Null).body(body)
}

#[tokio::test]
async fn a_body_of_30_mb_passes() -> anyhow::Result<()> {
    check_passes(|stack| stack, "large-body").await
}

#[tokio::test]
async fn a_body_of_30_mb_passes_with_envoys_default_limit() -> anyhow::Result<()> {
    check_passes(with_default_limits, "large-default").await
}

#[tokio::test]
async fn a_body_of_30_mb_passes_after_its_request_was_queued() -> anyhow::Result<()> {
    check_passes_after_queueing(|stack| stack, "large-queued").await
}

#[tokio::test]
async fn a_body_of_30_mb_passes_after_queueing_with_envoys_default_limit() -> anyhow::Result<()> {
    check_passes_after_queueing(with_default_limits, "large-queued-default").await
}

async fn check_passes(limits: fn(StackBuilder) -> StackBuilder, name: &str) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = limits(scripted(name, &[&replica], 4)).start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = large_body();

    send(post(&client, body.clone())).await?.success()?;
    assert!(replica.received()[0].body == body, "the body changed");
    Ok(())
}

async fn check_passes_after_queueing(
    limits: fn(StackBuilder) -> StackBuilder,
    name: &str,
) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = limits(scripted(name, &[&replica], 1)).start().await?;
    let client = Client::new(&stack.url(""))?;
    replica.push_action(Action::Hold);
    let first = client.spawn_chat("first");
    replica.wait_until_holding(1).await?;

    let body = large_body();
    let large = tokio::spawn(send(post(&client, body.clone())));
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;
    replica.release(1);

    assert_eq!(first.await??.status, 200);
    large.await??.success()?;
    assert!(replica.received()[1].body == body, "the body changed");
    Ok(())
}

/// The engine, not the filter, judges whether a prompt is valid.
#[tokio::test]
async fn a_body_that_the_filter_cannot_parse_passes_unchanged() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("unreadable", &[&replica], 4).start().await?;
    let client = Client::new(&stack.url(""))?;
    let deep = format!("{{\"messages\":{}", "[".repeat(100_000));
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xab, 0x56, 0xca];
    let bodies: [(&str, Vec<u8>); 7] = [
        ("/v1/chat/completions", b"Where is it warm?".to_vec()),
        (
            "/v1/chat/completions",
            b"{\"messages\": [{\"role\": \"us".to_vec(),
        ),
        ("/v1/chat/completions", deep.into_bytes()),
        ("/v1/chat/completions", gzip.to_vec()),
        ("/v1/chat/completions", Vec::new()),
        ("/v1/completions", b"{\"prompt\": \"\xff\xfe\"}".to_vec()),
        ("/v1/embeddings", b"\"warm\"".to_vec()),
    ];
    for (path, body) in &bodies {
        let request = client.post(path, &Value::Null);
        let response = send(request.body(body.clone())).await?;
        let start = String::from_utf8_lossy(&body[..body.len().min(40)]);
        assert_eq!(response.status, 200, "{start}: {}", response.text());
    }
    let without_body = send(client.get("/v1/responses")).await?;
    assert_eq!(without_body.status, 405, "the path takes POST alone");

    let received = replica.received();
    for ((path, body), request) in bodies.iter().zip(&received) {
        assert_eq!(&request.path, path);
        assert!(request.body == body, "a body for {path} changed");
    }
    assert_eq!(received.len(), bodies.len());
    Ok(())
}
