//! Paths that clients may use, and paths of engines that they may not: a route, the filter and the service each reject these.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Client, MODEL, ScriptedReplica, chat, permit, scripted, send};
use isotherm_harness::{Document, Stack, envoy};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const MANAGER: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";
/// The routes that reject paths and methods.
const ROUTES: [&str; 3] = ["unknown_path", "not_a_post", "not_a_get"];

/// Requests to paths of vLLM, SGLang and others, and spellings by which a path could pass for another.
const REJECTED: [(&str, &str); 25] = [
    ("GET", "/"),
    ("GET", "/metrics"),
    ("GET", "/metrics/"),
    ("GET", "/load"),
    ("GET", "/get_server_info"),
    ("POST", "/flush_cache"),
    ("GET", "/flush_cache"),
    ("POST", "/abort_request"),
    ("POST", "/tokenize"),
    ("POST", "/sleep"),
    ("POST", "/scale_elastic_ep"),
    ("POST", "/v1/load_lora_adapter"),
    ("GET", "//metrics"),
    ("GET", "/v1/../metrics"),
    ("GET", "/v1/models/../../metrics"),
    ("GET", "/v1/models/%2e%2e/%2E%2e/metrics"),
    ("GET", "/v1/models/..%2f..%2Fmetrics"),
    ("GET", "/v1/models/..%5c..%5cmetrics"),
    ("GET", "/metrics/v1/completions"),
    ("GET", "/metrics?path=/v1/completions"),
    ("GET", "/metrics%3f/v1/completions"),
    ("GET", "/metrics;/v1/completions"),
    ("POST", "/v1/completions/../../flush_cache"),
    ("POST", "/v1/completions;x"),
    ("POST", "/V1/completions"),
];

/// Requests to known paths with methods that they do not take, and the methods that they take.
const WRONG_METHODS: [(&str, &str, &str); 8] = [
    ("GET", "/v1/completions", "POST"),
    ("DELETE", "/v1/responses", "POST"),
    ("OPTIONS", "/v1/chat/completions", "POST"),
    ("TRACE", "/v1/chat/completions", "POST"),
    ("PUT", "/v1/messages/count_tokens?beta=true", "POST"),
    ("DELETE", "/v1/models/x", "GET, HEAD"),
    ("POST", "/v1/models", "GET, HEAD"),
    ("POST", "/health", "GET, HEAD"),
];

/// The response to a request whose path is sent as it stands.
async fn exchange(address: SocketAddr, method: &str, path: &str) -> anyhow::Result<String> {
    let body = chat("hello").to_string();
    let mut stream = TcpStream::connect(address).await?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: llm\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Checks that a response is a 404 in OpenAI's format.
fn check_rejected(response: &str) -> anyhow::Result<()> {
    let (head, body) = response.split_once("\r\n\r\n").context("no body")?;
    ensure!(head.starts_with("HTTP/1.1 404 "), "{head}");
    ensure!(head.contains("content-type: application/json"), "{head}");
    ensure!(!head.contains("x-served-by"), "a replica responded: {head}");
    let body: Value = serde_json::from_str(body)?;
    let error = body.get("error").context("no error")?;
    ensure!(
        error.get("type") == Some(&json!("invalid_request_error")),
        "{error}"
    );
    ensure!(error.get("code") == Some(&json!("unknown_url")), "{error}");
    ensure!(
        error.get("message").is_some_and(Value::is_string),
        "{error}"
    );
    Ok(())
}

/// Checks that no rejected path reaches the replica, and that the APIs do.
async fn check_paths(stack: &Stack, replica: &ScriptedReplica) -> anyhow::Result<()> {
    for (method, path) in REJECTED {
        let response = exchange(stack.envoy().address(), method, path).await?;
        check_rejected(&response).with_context(|| format!("{method} {path}"))?;
    }
    for (method, path, methods) in WRONG_METHODS {
        let response = exchange(stack.envoy().address(), method, path).await?;
        ensure!(
            response.starts_with("HTTP/1.1 405 "),
            "{method} {path}: {response}"
        );
        let allow = format!("allow: {methods}\r\n");
        ensure!(response.contains(&allow), "{method} {path}: {response}");
        let is_json = response.contains("method_not_allowed") || path.starts_with("/v1/messages");
        ensure!(is_json, "{method} {path}: {response}");
    }
    let received = replica.received();
    ensure!(received.is_empty(), "the replica received {received:?}");

    let client = Client::new(&stack.url(""))?;
    let bodies = [
        ("/v1/chat/completions", chat("hello")),
        (
            "/v1/completions?timeout=5",
            json!({ "model": MODEL, "prompt": "hello" }),
        ),
        ("/v1/responses", json!({ "model": MODEL, "input": "hello" })),
        (
            "/v1/embeddings",
            json!({ "model": MODEL, "input": "hello" }),
        ),
        ("/v1/messages", json!({ "model": MODEL, "messages": [] })),
        (
            "/v1/messages/count_tokens",
            json!({ "model": MODEL, "messages": [] }),
        ),
        ("/generate", json!({ "text": "hello" })),
        ("/generate_stream", json!({ "inputs": "hello" })),
    ];
    for (path, body) in &bodies {
        let response = send(client.post(path, body)).await?;
        ensure!(response.status == 200, "{path}: {}", response.text());
    }
    ensure!(replica.received().len() == bodies.len());
    for path in ["/v1/models", &format!("/v1/models/{MODEL}")] {
        let response = send(client.get(path)).await?;
        ensure!(response.status == 200, "{path}: {}", response.text());
        ensure!(
            response.text().contains(MODEL),
            "{path}: {}",
            response.text()
        );
    }
    Ok(())
}

/// Makes the routes for unknown paths and methods match no request.
fn without_route(document: &mut Document) -> anyhow::Result<()> {
    for route in ROUTES {
        let place =
            format!("{MANAGER}/route_config/virtual_hosts/name=llm/routes/name={route}/match");
        document.set(&place, json!({ "path": "/never" }))?;
    }
    Ok(())
}

#[tokio::test]
async fn no_path_outside_the_list_reaches_a_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("paths", &[&replica], 8).start().await?;
    check_paths(&stack, &replica).await
}

#[tokio::test]
async fn the_filter_rejects_paths_where_the_routes_pass_them() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("paths-filter", &[&replica], 8).envoy(without_route);
    let stack = stack.start().await?;
    check_paths(&stack, &replica).await?;
    let counter = "wasmcustom.isotherm_filter_rejected_paths";
    let rejected = stack.envoy().stat(counter).await?;
    let expected = REJECTED.len() + WRONG_METHODS.len();
    ensure!(rejected == expected as u64, "{rejected} rejected");
    Ok(())
}

#[tokio::test]
async fn the_service_rejects_paths_where_the_filter_passes_them() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("paths-service", &[&replica], 8)
        .envoy(without_route)
        .envoy(|document| {
            envoy::edit_filter(document, "isotherm.request", |filter| {
                filter.set("paths", json!(["*"]))
            })
        });
    let stack = stack.start().await?;
    check_paths(&stack, &replica).await
}

#[tokio::test]
async fn requests_as_old_proxies_and_tools_send_them_are_served() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("old-clients", &[&replica], 8).start().await?;
    let body = chat("hello").to_string();
    let length = body.len();
    for head in [
        format!("POST /v1/chat/completions HTTP/1.0\r\ncontent-length: {length}"),
        format!("POST /v1/chat/completions HTTP/1.0\r\nhost: llm\r\ncontent-length: {length}"),
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: llm\r\nconnection: close\r\nlangfuse_trace_id: abc\r\ncontent-length: {length}"
        ),
        "GET /health HTTP/1.0".to_owned(),
        "HEAD /health HTTP/1.1\r\nhost: llm\r\nconnection: close".to_owned(),
    ] {
        let mut stream = TcpStream::connect(stack.envoy().address()).await?;
        let body = if head.starts_with("POST") { &*body } else { "" };
        stream
            .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
            .await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        let response = String::from_utf8_lossy(&response);
        let status = response.split(' ').nth(1);
        ensure!(status == Some("200"), "{head}: {response}");
    }
    let received = replica.received();
    ensure!(received.len() == 3, "{received:?}");
    Ok(())
}

#[tokio::test]
async fn a_path_that_the_operator_adds_passes() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let paths = json!(["/v1/rerank"]);
    let of_filter = paths.clone();
    let stack = scripted("paths-added", &[&replica], 8)
        .service(move |config| config.set("paths", paths.clone()))
        .envoy(without_route)
        .envoy(move |document| {
            envoy::edit_filter(document, "isotherm.request", |filter| {
                filter.set("paths", of_filter.clone())
            })
        });
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let rerank = json!({ "model": MODEL, "query": "hello" });
    send(client.post("/v1/rerank", &rerank)).await?.success()?;
    let response = exchange(stack.envoy().address(), "POST", "/v1/completions").await?;
    check_rejected(&response)?;
    ensure!(replica.received().len() == 1);
    Ok(())
}
