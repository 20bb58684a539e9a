//! The server over real sockets, as a client sees it, and the program around it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use core::time::Duration;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt;
use isotherm_engine::cli::Cli;
use isotherm_engine::http::replica::Replica;
use isotherm_engine::http::serve::serve;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

const CHAT: &str = "/v1/chat/completions";

/// A running engine, which ends when it is dropped.
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

    fn request(&self, path: &str, body: impl ToString) -> reqwest::RequestBuilder {
        let request = self.client.post(format!("{}{path}", self.url));
        request.body(body.to_string())
    }

    async fn post(&self, path: &str, body: &Value) -> reqwest::Response {
        let request = self.request(path, body);
        let request = request.header("content-type", "application/json");
        request.send().await.unwrap()
    }

    async fn ask(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body).await;
        let status = response.status();
        let body = response.text().await.unwrap();
        assert!(status.is_success(), "{status}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn get(&self, path: &str) -> String {
        let response = reqwest::get(format!("{}{path}", self.url)).await;
        response.unwrap().text().await.unwrap()
    }

    /// The data of each event of a stream.
    async fn stream(&self, path: &str, body: &Value) -> Vec<String> {
        let text = self.post(path, body).await.text().await.unwrap();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(ToOwned::to_owned).collect()
    }

    /// Waits until the engine has this many running and waiting requests.
    async fn wait_for_load(&self, running: usize, waiting: usize) {
        let since = Instant::now();
        loop {
            let stats = self.replica.stats();
            if (stats.running, stats.waiting + stats.arrived) == (running, waiting) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(10), "{stats:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn cached_tokens(response: &Value) -> u64 {
    let cached = &response["usage"]["prompt_tokens_details"]["cached_tokens"];
    cached.as_u64().unwrap()
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = json!(true);
    body
}

fn chat(text: &str, max_tokens: u32) -> Value {
    json!({"model": "llama-3.1-8b", "max_tokens": max_tokens, "ignore_eos": true,
        "messages": [{"role": "user", "content": text}]})
}

#[tokio::test]
async fn a_client_gets_its_request_id_back_and_the_requests_with_it_are_counted() {
    let server = Server::start("").await;
    for (id, body) in [("a", "{"), ("a", "{}"), ("b", "{")] {
        let request = server.request(CHAT, body);
        let response = request.header("x-client-request-id", id).send();
        let response = response.await.unwrap();
        assert_eq!(response.headers()["x-client-request-id"], id);
    }
    let counts: Value = serde_json::from_str(&server.get("/debug/requests").await).unwrap();
    assert_eq!(counts, json!({ "a": 2, "b": 1 }));
}

#[tokio::test]
async fn a_second_turn_finds_the_first_in_the_cache() {
    let server = Server::start("--speed 1000").await;
    let question = "Tell me about the sea. ".repeat(40);
    let first = server.ask(CHAT, &chat(&question, 50)).await;
    assert_eq!(cached_tokens(&first), 0);
    assert_eq!(first["choices"][0]["finish_reason"], "length");
    let second = json!({"model": "llama-3.1-8b", "max_tokens": 5, "messages": [
        {"role": "user", "content": question},
        first["choices"][0]["message"],
        {"role": "user", "content": "And the sky?"},
    ]});
    let second = server.ask(CHAT, &second).await;
    let turn = first["usage"]["total_tokens"].as_u64().unwrap();
    let cached = cached_tokens(&second);
    assert!(cached + 16 >= turn && cached <= turn, "{cached} of {turn}");
}

#[tokio::test]
async fn a_stream_has_a_role_text_a_reason_and_its_usage_last() {
    let server = Server::start("--speed 1000 --stream-interval 1").await;
    let mut body = streamed(chat("hello", 30));
    body["stream_options"] = json!({"include_usage": true});
    let events = server.stream(CHAT, &body).await;
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
    let whole = server.ask(CHAT, &chat("hello", 30)).await;
    assert_eq!(
        whole["choices"][0]["message"]["content"], text,
        "streamed or not, the reply is the same"
    );
}

#[tokio::test]
async fn every_api_responds_in_its_own_format_whole_and_streamed() {
    let server = Server::start("--speed 1000").await;
    #[rustfmt::skip]
    let cases = [
        ("/v1/completions", json!({"prompt": "abc", "max_tokens": 3}), "/choices/0/text", "/usage/completion_tokens"),
        ("/v1/responses", json!({"input": "abc", "max_output_tokens": 3}), "/output/0/content/0/text", "/usage/output_tokens"),
        ("/v1/messages", json!({"system": "s", "messages": [{"role": "user", "content": "abc"}], "max_tokens": 3}), "/content/0/text", "/usage/output_tokens"),
        ("/generate", json!({"text": "abc", "sampling_params": {"max_new_tokens": 3, "ignore_eos": true}}), "/text", "/meta_info/completion_tokens"),
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
        let events = server.stream(path, &streamed(body)).await;
        assert!(events.len() >= 3, "{path}: {events:?}");
    }
}

#[tokio::test]
async fn a_stored_response_is_continued_and_read_by_its_own_engine_only() {
    let [server, other] = [Server::start("").await, Server::start("").await];
    let ask = |previous: Option<&str>, stream: bool| {
        json!({ "model": server.replica.settings.model, "input": "Where is it warm?", "max_output_tokens": 4,
            "previous_response_id": previous, "stream": stream })
    };
    let path = "/v1/responses";
    let first = server.ask(path, &ask(None, false)).await;
    let id = first["id"].as_str().unwrap();
    let second = server.ask(path, &ask(Some(id), false)).await;
    let tokens = |response: &Value| response["usage"]["input_tokens"].as_u64().unwrap();
    assert!(
        tokens(&second) > tokens(&first),
        "the conversation is in front"
    );
    server.stream(path, &ask(second["id"].as_str(), true)).await;
    let read: Value = serde_json::from_str(&server.get(&format!("{path}/{id}")).await).unwrap();
    assert_eq!(read, first);
    let status = server
        .post(&format!("{path}/{id}/cancel"), &json!({}))
        .await
        .status();
    assert_eq!(status, 400, "it has ended");

    let unknown = other.post(path, &ask(Some(id), false)).await;
    assert_eq!(unknown.status(), 404);
    let error: Value = unknown.json().await.unwrap();
    assert_eq!(error["error"]["param"], "response_id");
    let url = format!("{}{path}/{id}", other.url);
    assert_eq!(other.client.get(url).send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn several_prompts_get_a_choice_each() {
    let server = Server::start("--speed 1000").await;
    let body = json!({"prompt": ["one", "two", "three"], "max_tokens": 4, "ignore_eos": true});
    let answer = server.ask("/v1/completions", &body).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    assert_eq!(answer["usage"]["completion_tokens"], 12);
    let events = server.stream("/v1/completions", &streamed(body)).await;
    let is_end = |event: &&String| event.contains("\"finish_reason\":\"length\"");
    assert_eq!(events.iter().filter(is_end).count(), 3);
}

#[tokio::test]
async fn embeddings_depend_on_the_text_alone() {
    let server = Server::start("--speed 1000").await;
    let input = json!({"input": ["a", "b", "a"]});
    let answer = server.ask("/v1/embeddings", &input).await;
    let [first, second, third] = [0, 1, 2].map(|index| &answer["data"][index]["embedding"]);
    assert_eq!(first, third);
    assert_ne!(first, second);
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
}

#[tokio::test]
async fn a_count_of_tokens_is_the_input_of_the_same_message() {
    let server = Server::start("--speed 1000").await;
    let mut body = json!({
        "system": "You are a scientist",
        "messages": [{"role": "user", "content": "Hello, Claude"}],
        "tools": [{"name": "weather", "description": "Current weather", "input_schema": {"type": "object"}}],
    });
    let counted = server.ask("/v1/messages/count_tokens", &body).await;
    body["max_tokens"] = json!(2);
    let message = server.ask("/v1/messages", &body).await;
    assert_eq!(counted["input_tokens"], message["usage"]["input_tokens"]);
    assert!(counted["input_tokens"].as_u64().unwrap() > 5, "{counted}");
}

#[tokio::test]
async fn errors_have_openais_format() {
    let server = Server::start("--speed 1000 --context-tokens-max 100").await;
    let too_long = chat(&"long ".repeat(200), 1).to_string();
    #[rustfmt::skip]
    let cases = [
        (CHAT, r#"{"model":"gpt-9","messages":[{"role":"user","content":"x"}]}"#, 404),
        (CHAT, r#"{"model":"#, 400),
        (CHAT, "[]", 400),
        (CHAT, r#"{"messages":[]}"#, 400),
        (CHAT, r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":0}"#, 400),
        (CHAT, r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":200}"#, 400),
        (CHAT, &too_long, 400),
        ("/v1/completions", r#"{"prompt":{}}"#, 400),
        ("/v1/embeddings", r#"{"input":""}"#, 400),
    ];
    for (path, body, expected) in cases {
        let response = server.request(path, body).send().await.unwrap();
        assert_eq!(response.status(), expected, "{path} {body}");
        let error: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert!(error["error"]["message"].is_string(), "{error}");
        assert_eq!(error["error"]["code"], expected);
    }
}

#[tokio::test]
async fn tenants_and_adapters_share_no_cache() {
    let server = Server::start("--speed 1000 --adapter poet").await;
    let cached = async |model: &str, salt: Option<&str>| {
        let mut body = chat(&"the same words ".repeat(30), 2);
        body["model"] = json!(model);
        body["cache_salt"] = json!(salt);
        cached_tokens(&server.ask(CHAT, &body).await)
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
    server.ask(CHAT, &chat(&"words ".repeat(50), 4)).await;
    let page = server.get("/metrics").await;
    for (name, value) in [
        ("num_requests_running", "0.0"),
        ("num_requests_waiting", "0.0"),
        ("kv_cache_usage_perc", "0.0"),
        ("prefix_cache_hits_total", "0.0"),
        ("generation_tokens_total", "4.0"),
    ] {
        let line = format!(r#"vllm:{name}{{engine="0",model_name="llama-3.1-8b"}} {value}"#);
        assert!(page.lines().any(|actual| actual == line), "{line}: {page}");
    }
    assert!(page.contains(r#"num_gpu_blocks="2120""#) && page.contains(r#"block_size="16""#));
}

/// Reads a number from a metrics page: the value of the only series whose name is `name`.
fn metric(page: &str, name: &str) -> f64 {
    let mut lines = page
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name));
    let line = lines.next().unwrap_or_else(|| panic!("no {name}: {page}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_metrics_page_has_the_time_of_each_phase_by_the_clients_clock() {
    let server = Server::start("--speed 100").await;
    let started = std::time::Instant::now();
    server.ask(CHAT, &chat(&"words ".repeat(4_000), 40)).await;
    let took = started.elapsed().as_secs_f64();
    let page = server.get("/metrics").await;
    let seconds = |name| metric(&page, &format!("vllm:{name}_seconds_sum"));
    for name in [
        "request_queue_time",
        "request_prefill_time",
        "request_decode_time",
    ] {
        let count = format!("vllm:{name}_seconds_count");
        assert_eq!(metric(&page, &count).to_string(), "1", "{count}");
    }
    let (queue, prefill) = (
        seconds("request_queue_time"),
        seconds("request_prefill_time"),
    );
    let (decode, ttft) = (
        seconds("request_decode_time"),
        seconds("time_to_first_token"),
    );
    assert!(prefill > 0.0 && decode > 0.0, "{page}");
    assert!(
        (ttft - queue - prefill).abs() < 1e-9,
        "{ttft} of {queue} and {prefill}"
    );
    assert!(ttft + decode <= took, "{ttft} and {decode} of {took}");
    assert!(metric(&page, "process_start_time_seconds") > 1.7e9);
}

#[tokio::test]
async fn sglangs_metrics_page_has_the_same_times() {
    let server = Server::start("--speed 100 --metrics sglang").await;
    server.ask(CHAT, &chat(&"words ".repeat(400), 8)).await;
    let page = server.get("/metrics").await;
    assert!(page.contains(r#"stage="prefill_forward"} 1.0"#), "{page}");
    let seconds = |name| metric(&page, &format!("sglang:{name}_seconds_sum"));
    let (ttft, all) = (
        seconds("time_to_first_token"),
        seconds("e2e_request_latency"),
    );
    let decode = seconds("inter_token_latency");
    assert!(
        (all - ttft - decode).abs() < 1e-9,
        "{all} of {ttft} and {decode}"
    );
}

#[tokio::test]
async fn usage_tells_cached_tokens_as_ordered() {
    for (when, expected) in [
        ("always", [true, true]),
        ("found", [false, true]),
        ("never", [false; 2]),
    ] {
        let server = Server::start(&format!("--speed 1000 --cached-tokens {when}")).await;
        for is_told in expected {
            let response = server.ask(CHAT, &chat(&"words ".repeat(50), 4)).await;
            let details = &response["usage"]["prompt_tokens_details"];
            assert_eq!(!details.is_null(), is_told, "{when}: {response}");
        }
    }
}

#[tokio::test]
async fn a_load_report_comes_with_whole_responses_on_request() {
    let server = Server::start("--speed 1000").await;
    let report = async |format: Option<&str>, stream: bool| {
        let mut body = chat("hello", 2);
        body["stream"] = json!(stream);
        let mut request = server.request(CHAT, body);
        if let Some(format) = format {
            request = request.header("endpoint-load-metrics-format", format);
        }
        let response = request.send().await.unwrap();
        let report = response.headers().get("endpoint-load-metrics");
        report.map(|value| value.to_str().unwrap().to_owned())
    };
    let text = "TEXT named_metrics.num_requests_waiting=0.0, named_metrics.kv_cache_usage_perc=0.0";
    assert_eq!(report(Some("TEXT"), false).await.as_deref(), Some(text));
    let json = report(Some("JSON"), false).await.unwrap();
    assert!(json.starts_with("JSON {\"named_metrics\":{"), "{json}");
    assert_eq!(report(None, false).await, None);
    assert_eq!(report(Some("TEXT"), true).await, None);
}

#[tokio::test]
async fn a_client_that_disconnects_frees_its_blocks_at_once() {
    let server = Server::start("--speed 1 --sequences-max 1").await;
    let body = streamed(chat("hello", 500));
    let mut events = server.post(CHAT, &body).await.bytes_stream();
    events.next().await.unwrap().unwrap();
    let queued = tokio::spawn(server.request(CHAT, chat("second", 500)).send());
    server.wait_for_load(1, 1).await;
    queued.abort();
    server.wait_for_load(1, 0).await;
    drop(events);
    server.wait_for_load(0, 0).await;
    assert_eq!(server.replica.stats().totals.aborted, 2);
}

#[tokio::test]
async fn the_load_history_shows_how_long_requests_waited() {
    let server = Server::start("--speed 20 --sequences-max 1").await;
    let body = chat("hello", 20);
    let ask = || server.ask(CHAT, &body);
    tokio::join!(ask(), ask(), ask());
    let load: Value = serde_json::from_str(&server.get("/debug/load").await).unwrap();
    let changes = load["changes"].as_array().unwrap();
    let is_two_waiting = |change: &Value| change[1] == 2;
    assert!(changes.iter().any(is_two_waiting), "{load}");
    assert_eq!(load["finished"], 3);
    assert!(changes.is_sorted_by_key(|change| change[0].as_u64()));
}

#[tokio::test]
async fn injected_faults_take_effect() {
    let server = Server::start("--speed 1000").await;
    let quick = Duration::from_millis(300);
    let body = chat("hello", 4);
    let fault = async |order: Value| server.post("/fault", &order).await.status();

    assert_eq!(
        fault(json!({"error_share": 1.0, "error_status": 503})).await,
        200
    );
    assert_eq!(server.post(CHAT, &body).await.status(), 503);
    assert_eq!(fault(json!({"error_share": 0.0, "hang": true})).await, 200);
    let hanging = tokio::time::timeout(quick, server.post(CHAT, &body));
    assert!(hanging.await.is_err());
    assert!(server.get("/metrics").await.contains("vllm:"));
    assert_eq!(
        fault(json!({"hang": false, "metrics_hang": true})).await,
        200
    );
    let hanging = tokio::time::timeout(quick, server.get("/metrics"));
    assert!(hanging.await.is_err());
    assert_eq!(fault(json!({"metrics_hang": false})).await, 200);
    server.ask(CHAT, &body).await;

    assert_eq!(fault(json!({"refuse_ms": 1500})).await, 200);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let connect = || reqwest::get(format!("{}/health", server.url));
    assert!(connect().await.is_err_and(|error| error.is_connect()));
    let since = Instant::now();
    while connect().await.is_err() {
        let is_late = since.elapsed() > Duration::from_secs(20);
        assert!(!is_late, "the replica does not listen on its port again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    assert_eq!(fault(json!({"explode": true})).await, 400);
    assert_eq!(fault(json!({"slow": 0.0})).await, 400);
}

#[tokio::test]
async fn a_crash_cuts_streams_in_the_middle() {
    let mut server = Server::start("--speed 1").await;
    let body = streamed(chat("hello", 500));
    let mut events = server.post(CHAT, &body).await.bytes_stream();
    events.next().await.unwrap().unwrap();
    server.ask("/fault", &json!({"crash_ms": 100})).await;
    (&mut server.task).await.unwrap().unwrap();
    let broken = async { while let Some(Ok(_)) = events.next().await {} };
    tokio::time::timeout(Duration::from_secs(2), broken)
        .await
        .expect("the stream broke off");
    let connect = reqwest::get(format!("{}/health", server.url));
    assert!(connect.await.is_err());
}

#[tokio::test]
async fn an_image_of_many_megabytes_is_a_few_tokens() {
    let server = Server::start("--speed 1000").await;
    let url = format!("data:image/png;base64,{}", "A".repeat(30 << 20));
    let content = json!([{"type": "text", "text": "what is this?"}, {"type": "image_url", "image_url": {"url": url}}]);
    let body = json!({"max_tokens": 2, "messages": [{"role": "user", "content": content}]});
    let answer = server.ask(CHAT, &body).await;
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() < 300);
}

#[tokio::test]
async fn a_request_id_is_kept_or_assigned() {
    let server = Server::start("--speed 1000").await;
    let body = json!({"prompt": "a", "max_tokens": 1});
    let request = server.request("/v1/completions", body);
    let request = request.header("x-request-id", "mine");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-request-id"], "mine");
    assert!(
        response
            .text()
            .await
            .unwrap()
            .contains(r#""id":"cmpl-mine""#)
    );
    let models = reqwest::get(format!("{}/v1/models", server.url)).await;
    assert!(models.unwrap().headers().contains_key("x-request-id"));
}

#[tokio::test]
async fn adapters_are_listed_loaded_and_reported() {
    let arguments =
        "--speed 1000 --adapter poet --adapter sql --adapter-slots 1 --adapter-load-ms 50";
    let server = Server::start(arguments).await;
    let models: Value = serde_json::from_str(&server.get("/v1/models").await).unwrap();
    let parents = models["data"].as_array().unwrap().iter();
    let parents: Vec<_> = parents.map(|card| card["parent"].as_str()).collect();
    assert_eq!(parents, [None, Some("llama-3.1-8b"), Some("llama-3.1-8b")]);
    for model in ["poet", "llama-3.1-8b:sql", "sql", "llama-3.1-8b"] {
        let mut body = chat("hello", 2);
        body["model"] = json!(model);
        server.ask(CHAT, &body).await;
    }
    let load: Value = serde_json::from_str(&server.get("/debug/load").await).unwrap();
    assert_eq!(load["adapter_loads"], 2);
    let page = server.get("/metrics").await;
    let labels = r#"{max_lora="1",running_lora_adapters="",waiting_lora_adapters=""}"#;
    let line = format!("vllm:lora_requests_info{labels} ");
    assert!(
        page.lines().any(|actual| actual.starts_with(&line)),
        "{page}"
    );
}

/// Starts the program and reads where its replicas listen.
fn start(arguments: &[&str], replicas: usize) -> (Child, Vec<String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_isotherm-engine"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = |line: String| line.strip_prefix("listening on ").unwrap().to_owned();
    let addresses = lines.take(replicas).map(|line| address(line.unwrap()));
    let addresses = addresses.collect();
    (child, addresses)
}

#[tokio::test]
async fn each_replica_prints_its_address_and_has_its_own_engine() {
    let arguments = ["--replicas", "3", "--speed", "1000", "--model", "tiny"];
    let (mut child, addresses) = start(&arguments, 3);
    assert_eq!(addresses.len(), 3);
    let client = reqwest::Client::new();
    for address in &addresses {
        let request = client.post(format!("http://{address}/v1/completions"));
        let prompt = "abcd".repeat(40);
        let body = format!(r#"{{"model":"tiny","prompt":"{prompt}","max_tokens":1}}"#);
        let response = request.body(body).send().await.unwrap();
        let response = response.text().await.unwrap();
        assert!(response.contains(r#""cached_tokens":0"#), "{response}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn an_ordered_crash_ends_the_process_with_its_own_exit_code() {
    let (mut child, addresses) = start(&["--fault", "crash_ms=100"], 1);
    assert_eq!(addresses.len(), 1);
    let status = tokio::task::spawn_blocking(move || child.wait()).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(70));
}

#[test]
fn a_wrong_option_is_explained() {
    let output = Command::new(env!("CARGO_BIN_EXE_isotherm-engine"))
        .args(["--preset", "gpt-2"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("llama2-70b-h100"), "{text}");
}
