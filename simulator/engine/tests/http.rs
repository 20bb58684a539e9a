//! The server over real sockets, as a client sees it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use isotherm_engine::cli::Cli;
use isotherm_engine::http::replica::Replica;
use isotherm_engine::http::serve::serve;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A running engine; gone when dropped.
struct Server {
    replica: Arc<Replica>,
    url: String,
    client: reqwest::Client,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start(arguments: &str) -> Self {
        use clap::Parser;
        let words = core::iter::once("isotherm-engine").chain(arguments.split_whitespace());
        let cli = Cli::try_parse_from(words).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let replica = Replica::new(cli.settings(0));
        for &order in &cli.fault {
            replica.order(order).unwrap();
        }
        let task = tokio::spawn(serve(Arc::clone(&replica), listener));
        Self {
            replica,
            url,
            client: reqwest::Client::new(),
            task,
        }
    }

    async fn post(&self, path: &str, body: &Value) -> reqwest::Response {
        let request = self.client.post(format!("{}{path}", self.url));
        request
            .header("content-type", "application/json")
            .body(body.to_string())
            .send()
            .await
            .unwrap()
    }

    async fn ask(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body).await;
        let status = response.status();
        let body = response.text().await.unwrap();
        assert!(status.is_success(), "{status}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        self.client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap()
    }

    /// The data of each event of a stream.
    async fn stream(&self, path: &str, body: &Value) -> Vec<String> {
        let text = self.post(path, body).await.text().await.unwrap();
        text.split("\n\n")
            .filter_map(|event| {
                event
                    .lines()
                    .find_map(|line| line.strip_prefix("data: "))
                    .map(ToOwned::to_owned)
            })
            .collect()
    }

    /// Waits until the engine's load is as wanted.
    async fn until(&self, wanted: impl Fn(usize, usize) -> bool) {
        let since = Instant::now();
        loop {
            let stats = self.replica.stats();
            if wanted(stats.running, stats.waiting + stats.arrived) {
                return;
            }
            assert!(
                since.elapsed() < Duration::from_secs(10),
                "not reached: {stats:?}"
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn chat(text: &str, max_tokens: u32) -> Value {
    json!({"model": "llama-3.1-8b", "max_tokens": max_tokens, "ignore_eos": true,
        "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_second_turn_finds_the_first_in_the_cache() {
    let server = Server::start("--speed 1000").await;
    let question = "Tell me about the sea. ".repeat(40);
    let first = server
        .ask("/v1/chat/completions", &chat(&question, 50))
        .await;
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(first["choices"][0]["finish_reason"], "length");
    let second = json!({"model": "llama-3.1-8b", "max_tokens": 5, "messages": [
        {"role": "user", "content": question},
        first["choices"][0]["message"],
        {"role": "user", "content": "And the sky?"},
    ]});
    let second = server.ask("/v1/chat/completions", &second).await;
    let turn = first["usage"]["total_tokens"].as_u64().unwrap();
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    assert!(cached + 16 >= turn && cached <= turn, "{cached} of {turn}");
}

#[tokio::test]
async fn a_stream_has_a_role_text_a_reason_and_its_usage_last() {
    let server = Server::start("--speed 1000 --stream-interval 1").await;
    let mut body = chat("hello", 30);
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = server.stream("/v1/chat/completions", &body).await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    let usage = &chunks[chunks.len() - 1];
    assert_eq!(usage["usage"]["completion_tokens"], 30);
    assert_eq!(usage["choices"], json!([]));
    assert_eq!(
        chunks[chunks.len() - 2]["choices"][0]["finish_reason"],
        "length"
    );
    let whole = server.ask("/v1/chat/completions", &chat("hello", 30)).await;
    assert_eq!(
        whole["choices"][0]["message"]["content"], text,
        "streamed or not, the reply is the same"
    );
}

#[tokio::test]
async fn every_api_responds_in_its_own_format_whole_and_streamed() {
    let server = Server::start("--speed 1000").await;
    let cases = [
        (
            "/v1/completions",
            json!({"prompt": "abc", "max_tokens": 3}),
            "/choices/0/text",
            "/usage/completion_tokens",
        ),
        (
            "/v1/responses",
            json!({"input": "abc", "max_output_tokens": 3}),
            "/output/0/content/0/text",
            "/usage/output_tokens",
        ),
        (
            "/v1/messages",
            json!({"system": "s", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 3}),
            "/content/0/text",
            "/usage/output_tokens",
        ),
        (
            "/generate",
            json!({"text": "abc", "sampling_params": {"max_new_tokens": 3, "ignore_eos": true}}),
            "/text",
            "/meta_info/completion_tokens",
        ),
    ];
    for (path, mut body, text, tokens) in cases {
        body["ignore_eos"] = json!(true);
        let answer = server.ask(path, &body).await;
        assert_eq!(
            answer.pointer(text).unwrap().as_str().unwrap().len(),
            12,
            "{path}: {answer}"
        );
        assert_eq!(answer.pointer(tokens).unwrap(), 3, "{path}");
        body["stream"] = json!(true);
        let events = server.stream(path, &body).await;
        assert!(events.len() >= 3, "{path}: {events:?}");
    }
}

#[tokio::test]
async fn several_prompts_get_a_choice_each() {
    let server = Server::start("--speed 1000").await;
    let mut body = json!({"prompt": ["one", "two", "three"], "max_tokens": 4, "ignore_eos": true});
    let answer = server.ask("/v1/completions", &body).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    assert_eq!(answer["usage"]["completion_tokens"], 12);
    body["stream"] = json!(true);
    let ends = server.stream("/v1/completions", &body).await;
    assert_eq!(
        ends.iter()
            .filter(|event| event.contains("\"finish_reason\":\"length\""))
            .count(),
        3
    );
}

#[tokio::test]
async fn embeddings_depend_on_the_text_alone() {
    let server = Server::start("--speed 1000").await;
    let answer = server
        .ask("/v1/embeddings", &json!({"input": ["a", "b", "a"]}))
        .await;
    assert_eq!(
        answer["data"][0]["embedding"],
        answer["data"][2]["embedding"]
    );
    assert_ne!(
        answer["data"][0]["embedding"],
        answer["data"][1]["embedding"]
    );
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
}

#[tokio::test]
async fn errors_have_openais_format() {
    let server = Server::start("--speed 1000 --context-tokens-max 100").await;
    let status = async |path: &str, body: &str| {
        let request = server
            .client
            .post(format!("{}{path}", server.url))
            .body(body.to_owned());
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let error: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert!(error["error"]["message"].is_string(), "{error}");
        assert_eq!(error["error"]["code"], status);
        status
    };
    let path = "/v1/chat/completions";
    assert_eq!(
        status(
            path,
            r#"{"model":"gpt-9","messages":[{"role":"user","content":"x"}]}"#
        )
        .await,
        404
    );
    assert_eq!(status(path, r#"{"model":"#).await, 400);
    assert_eq!(status(path, "[]").await, 400);
    assert_eq!(status(path, r#"{"messages":[]}"#).await, 400);
    assert_eq!(
        status(
            path,
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":0}"#
        )
        .await,
        400
    );
    assert_eq!(
        status(
            path,
            r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":200}"#
        )
        .await,
        400
    );
    assert_eq!(
        status(path, &chat(&"long ".repeat(200), 1).to_string()).await,
        400
    );
    assert_eq!(status("/v1/completions", r#"{"prompt":{}}"#).await, 400);
    assert_eq!(status("/v1/embeddings", r#"{"input":""}"#).await, 400);
}

#[tokio::test]
async fn tenants_and_adapters_share_no_cache() {
    let server = Server::start("--speed 1000 --adapter poet").await;
    let cached = async |model: &str, salt: Option<&str>| {
        let mut body = chat(&"the same words ".repeat(30), 2);
        body["model"] = json!(model);
        body["cache_salt"] = json!(salt);
        let answer = server.ask("/v1/chat/completions", &body).await;
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(cached("llama-3.1-8b", None).await, 0);
    assert!(cached("llama-3.1-8b", None).await > 0);
    assert_eq!(cached("llama-3.1-8b", Some("tenant")).await, 0);
    assert_eq!(cached("poet", None).await, 0);
    assert!(cached("poet", None).await > 0);
}

#[tokio::test]
async fn the_metrics_page_has_vllms_names() {
    let server = Server::start("--speed 1000").await;
    server
        .ask("/v1/chat/completions", &chat(&"words ".repeat(50), 4))
        .await;
    let page = server.get("/metrics").await;
    for line in [
        r#"vllm:num_requests_running{engine="0",model_name="llama-3.1-8b"} 0.0"#,
        r#"vllm:num_requests_waiting{engine="0",model_name="llama-3.1-8b"} 0.0"#,
        r#"vllm:kv_cache_usage_perc{engine="0",model_name="llama-3.1-8b"} 0.0"#,
        r#"vllm:prefix_cache_hits_total{engine="0",model_name="llama-3.1-8b"} 0.0"#,
        r#"vllm:generation_tokens_total{engine="0",model_name="llama-3.1-8b"} 4.0"#,
    ] {
        assert!(
            page.lines().any(|have| have == line),
            "{line} is not in {page}"
        );
    }
    assert!(page.contains(r#"num_gpu_blocks="2120""#) && page.contains(r#"block_size="16""#));
}

#[tokio::test]
async fn the_metrics_page_has_sglangs_names_when_asked() {
    let server = Server::start("--speed 1000 --metrics sglang").await;
    let page = server.get("/metrics").await;
    assert!(page.contains("\nsglang:num_queue_reqs{") && page.contains("\nsglang:token_usage{"));
}

#[tokio::test]
async fn a_load_report_comes_with_whole_responses_on_request() {
    let server = Server::start("--speed 1000").await;
    let report = async |format: Option<&str>, stream: bool| {
        let mut body = chat("hello", 2);
        body["stream"] = json!(stream);
        let mut request = server
            .client
            .post(format!("{}/v1/chat/completions", server.url))
            .body(body.to_string());
        if let Some(format) = format {
            request = request.header("endpoint-load-metrics-format", format);
        }
        let response = request.send().await.unwrap();
        response
            .headers()
            .get("endpoint-load-metrics")
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let text = "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0";
    assert_eq!(report(Some("TEXT"), false).await.as_deref(), Some(text));
    assert!(
        report(Some("JSON"), false)
            .await
            .unwrap()
            .starts_with("JSON {\"named_metrics\":{")
    );
    assert_eq!(report(None, false).await, None);
    assert_eq!(report(Some("TEXT"), true).await, None);
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_blocks_at_once() {
    let server = Server::start("--speed 1 --sequences-max 1").await;
    let mut body = chat("hello", 500);
    body["stream"] = json!(true);
    let mut events = server
        .post("/v1/chat/completions", &body)
        .await
        .bytes_stream();
    events.next().await.unwrap().unwrap();
    let queued = {
        let (client, url) = (server.client.clone(), server.url.clone());
        tokio::spawn(async move {
            client
                .post(format!("{url}/v1/chat/completions"))
                .body(chat("second", 500).to_string())
                .send()
                .await
        })
    };
    server
        .until(|running, waiting| (running, waiting) == (1, 1))
        .await;
    queued.abort();
    server
        .until(|running, waiting| (running, waiting) == (1, 0))
        .await;
    drop(events);
    server
        .until(|running, waiting| (running, waiting) == (0, 0))
        .await;
    assert_eq!(server.replica.stats().totals.aborted, 2);
}

#[tokio::test]
async fn the_load_history_shows_how_long_requests_waited() {
    let server = Server::start("--speed 20 --sequences-max 1").await;
    let body = chat("hello", 20);
    let path = "/v1/chat/completions";
    tokio::join!(
        server.ask(path, &body),
        server.ask(path, &body),
        server.ask(path, &body)
    );
    let load: Value = serde_json::from_str(&server.get("/debug/load").await).unwrap();
    let changes = load["changes"].as_array().unwrap();
    assert!(
        changes.iter().any(|change| change[1] == 2),
        "two waited: {load}"
    );
    assert_eq!(load["finished"], 3);
    assert!(
        changes
            .windows(2)
            .all(|pair| pair[0][0].as_u64() <= pair[1][0].as_u64())
    );
}

#[tokio::test]
async fn the_speed_factor_scales_real_time() {
    let timed = async |speed: &str| {
        let server = Server::start(speed).await;
        let since = Instant::now();
        server.ask("/v1/chat/completions", &chat("hello", 16)).await;
        since.elapsed()
    };
    // Sixteen tokens at 63 ms each are a second.
    let (slow, fast) = (timed("--speed 4").await, timed("--speed 100").await);
    assert!(slow > Duration::from_millis(240), "{slow:?}");
    assert!(fast < slow, "{fast:?}");
}

#[tokio::test]
async fn injected_faults_take_effect() {
    let server = Server::start("--speed 1000").await;
    let quick = Duration::from_millis(300);
    let path = "/v1/chat/completions";
    let body = chat("hello", 4);

    server
        .ask("/fault", &json!({"error_share": 1.0, "error_status": 503}))
        .await;
    assert_eq!(server.post(path, &body).await.status(), 503);
    server
        .ask("/fault", &json!({"error_share": 0.0, "hang": true}))
        .await;
    assert!(
        tokio::time::timeout(quick, server.post(path, &body))
            .await
            .is_err()
    );
    assert!(server.get("/metrics").await.contains("vllm:"));
    server
        .ask("/fault", &json!({"hang": false, "metrics_hang": true}))
        .await;
    assert!(
        tokio::time::timeout(quick, server.get("/metrics"))
            .await
            .is_err()
    );
    server.ask("/fault", &json!({"metrics_hang": false})).await;
    server.ask(path, &body).await;

    server.ask("/fault", &json!({"refuse_ms": 1500})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stranger = || {
        reqwest::Client::new()
            .get(format!("{}/health", server.url))
            .send()
    };
    assert!(stranger().await.is_err_and(|error| error.is_connect()));
    let since = Instant::now();
    while stranger().await.is_err() {
        assert!(
            since.elapsed() < Duration::from_secs(20),
            "it is not back on the same port"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    assert_eq!(
        server
            .post("/fault", &json!({"explode": true}))
            .await
            .status(),
        400
    );
    assert_eq!(
        server.post("/fault", &json!({"slow": 0.0})).await.status(),
        400
    );
}

#[tokio::test]
async fn a_crash_cuts_streams_in_the_middle() {
    let mut server = Server::start("--speed 1").await;
    let mut body = chat("hello", 500);
    body["stream"] = json!(true);
    let mut events = server
        .post("/v1/chat/completions", &body)
        .await
        .bytes_stream();
    events.next().await.unwrap().unwrap();
    server.ask("/fault", &json!({"crash_ms": 100})).await;
    (&mut server.task).await.unwrap().unwrap();
    let broken = async { while let Some(Ok(_)) = events.next().await {} };
    tokio::time::timeout(Duration::from_secs(2), broken)
        .await
        .expect("the stream broke off");
    assert!(
        server
            .client
            .get(format!("{}/health", server.url))
            .send()
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_slow_engine_is_slow() {
    let server = Server::start("--speed 100 --fault slow=20").await;
    let since = Instant::now();
    server.ask("/v1/chat/completions", &chat("hello", 20)).await;
    assert!(
        since.elapsed() > Duration::from_millis(200),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test]
async fn an_image_of_many_megabytes_is_a_few_tokens() {
    let server = Server::start("--speed 1000").await;
    let url = format!("data:image/png;base64,{}", "A".repeat(30 << 20));
    let content = json!([{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": url}}]);
    let body = json!({"max_tokens": 2, "messages": [{"role": "user", "content": content}]});
    let answer = server.ask("/v1/chat/completions", &body).await;
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() < 300);
}

#[tokio::test]
async fn a_request_id_is_kept_or_assigned() {
    let server = Server::start("--speed 1000").await;
    let request = server
        .client
        .post(format!("{}/v1/completions", server.url))
        .header("x-request-id", "mine");
    let response = request
        .body(json!({"prompt": "a", "max_tokens": 1}).to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine");
    assert_eq!(
        serde_json::from_str::<Value>(&response.text().await.unwrap()).unwrap()["id"],
        "cmpl-mine"
    );
    let models = server
        .client
        .get(format!("{}/v1/models", server.url))
        .send()
        .await
        .unwrap();
    assert!(models.headers().contains_key("x-request-id"));
}
