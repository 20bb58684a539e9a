//! Bodies of any size and of any kind pass, with the limit of the file as shipped and with Envoy's default one.

use isotherm_e2e::{Client, HttpResponse, MODEL, ScriptedReplica, admin, chat, permit, scripted};
use isotherm_harness::{StackBuilder, envoy};
use reqwest::RequestBuilder;

const LARGE_BYTES: usize = 30 << 20;
/// Where the file says more than Envoy allows by itself, which is 1 MiB.
const BODY_LIMIT: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm/request_body_buffer_limit";

/// An image-laden prompt would be of that size. The text has an escape in it now and then, as real ones do.
fn large_body() -> String {
    let sentence = "It was a \\\"warm\\\" day in the far north, and nobody knew why.\\n";
    let text = sentence.repeat(LARGE_BYTES / sentence.len() + 1);
    format!(
        r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

/// Takes the larger limit on bodies back to what Envoy has by itself, and to what the filter does then.
fn default_limits(stack: StackBuilder) -> StackBuilder {
    stack.envoy(|document| {
        document.remove(BODY_LIMIT)?;
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.set("request_body_buffer_limit", 0)?;
            filter.set("buffer_bytes_max", 700 << 10)
        })
    })
}

fn post(client: &Client, body: String) -> RequestBuilder {
    let request = client.post("/v1/chat/completions", &serde_json::Value::Null);
    request.body(body)
}

#[tokio::test]
async fn a_body_of_30_mb_passes() -> anyhow::Result<()> {
    passes(|stack| stack, "large-body").await
}

#[tokio::test]
async fn a_body_of_30_mb_passes_with_envoys_default_limit() -> anyhow::Result<()> {
    passes(default_limits, "large-default").await
}

#[tokio::test]
async fn a_body_of_30_mb_passes_after_its_request_was_queued() -> anyhow::Result<()> {
    passes_after_waiting(|stack| stack, "large-queued").await
}

#[tokio::test]
async fn a_body_of_30_mb_passes_after_waiting_with_envoys_default_limit() -> anyhow::Result<()> {
    passes_after_waiting(default_limits, "large-queued-default").await
}

async fn passes(limits: fn(StackBuilder) -> StackBuilder, name: &str) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = limits(scripted(name, &[&replica], 4)).start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = large_body();

    let answer = HttpResponse::to(post(&client, body.clone())).await?;

    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = replica.received();
    assert!(seen[0].body == body, "the body arrived changed");
    Ok(())
}

async fn passes_after_waiting(
    limits: fn(StackBuilder) -> StackBuilder,
    name: &str,
) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = limits(scripted(name, &[&replica], 1)).start().await?;
    let client = Client::new(&stack.url(""))?;
    replica.push_action(isotherm_e2e::Action::Hold);
    let first = tokio::spawn(HttpResponse::to(
        client.post("/v1/chat/completions", &chat("first")),
    ));
    replica.wait_until_holding(1).await?;

    let body = large_body();
    let large = tokio::spawn(HttpResponse::to(post(&client, body.clone())));
    admin::becomes(stack.service(), "queue_length", 1).await?;
    replica.release(1);

    assert_eq!(first.await??.status, 200);
    let answer = large.await??;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        replica.received()[1].body == body,
        "the body arrived changed"
    );
    Ok(())
}

/// A filter that reads prompts must not be the judge of them: what it cannot read is the engine's to refuse.
#[tokio::test]
async fn what_cannot_be_read_is_passed_on_as_it_is() -> anyhow::Result<()> {
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
        ("/v1/rerank", b"{\"query\": \"warm\"}".to_vec()),
    ];
    for (path, body) in &bodies {
        let request = client.post(path, &serde_json::Value::Null);
        let answer = HttpResponse::to(request.body(body.clone())).await?;
        let start = String::from_utf8_lossy(&body[..body.len().min(40)]);
        assert_eq!(answer.status, 200, "{start}: {}", answer.text());
    }
    let answer = HttpResponse::to(client.get("/health")).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());

    let seen = replica.received();
    for ((path, body), request) in bodies.iter().zip(&seen) {
        assert_eq!(&request.path, path);
        assert!(request.body == body, "a body for {path} arrived changed");
    }
    assert_eq!(seen.len(), bodies.len() + 1);
    Ok(())
}
