//! A replica under the control of a test: it responds, holds requests, or disconnects.
//!
//! Where a test is about the choice and the time of a dispatch, an engine with timing of its own only adds doubt. A
//! scripted replica responds in vLLM's format, serves vLLM's metrics, records requests, and holds a request until the
//! test releases it. Its cache is minimal: it has a prompt when it received the very same body before.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt as _};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isotherm_harness::{TcpServer, wait_until};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::{MODEL, WAIT_MAX, lock};

/// The response header with the name of the scripted replica.
pub const SERVED_BY: &str = "x-served-by";
/// The path whose responses always name cached tokens, and have an id with the name of the replica.
const RESPONSES_PATH: &str = "/v1/responses";
/// Bytes of a request in a token, as the replica counts.
const TOKEN_BYTES: usize = 4;

/// Permits for more requests than any test sends.
const UNLIMITED: usize = 1 << 20;

/// The replica's reaction to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Respond at once.
    Respond,
    /// Respond when released.
    Hold,
    /// Start a streamed response, and end it when released.
    Stream,
    /// Respond with this status and an error in OpenAI's format.
    Status(u16),
    /// Close the connection without a response.
    Disconnect,
}

/// A request that the replica received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Path.
    pub path: String,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

/// A running replica. It ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedReplica {
    address: SocketAddr,
    state: Arc<State>,
    server: Option<TcpServer>,
}

#[derive(Debug)]
struct State {
    name: String,
    script: Mutex<Script>,
    releases: Semaphore,
    /// Each running request has a clone.
    running: Arc<()>,
    /// Each held request has a clone.
    held: Arc<()>,
    /// Share of the KV cache in use, in thousandths, as the metrics tell it.
    kv_usage: AtomicU32,
    /// Whether chats tell no cached tokens.
    is_stock_vllm: AtomicBool,
}

/// Share of the KV cache in use, in thousandths, unless a test sets it.
const KV_USAGE: u32 = 100;

#[derive(Debug)]
struct Script {
    next: VecDeque<Action>,
    default: Action,
    /// Text of the bodies on which the replica disconnects, whatever its reaction to others.
    deadly: Option<String>,
    received: Vec<ReceivedRequest>,
}

impl Script {
    fn is_deadly(&self, body: &[u8]) -> bool {
        let text = self.deadly.as_deref().map(str::as_bytes);
        text.is_some_and(|text| body.windows(text.len()).any(|window| window == text))
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl ScriptedReplica {
    /// Starts a replica on a free port that responds to everything at once.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let script = Script {
            next: VecDeque::new(),
            default: Action::Respond,
            deadly: None,
            received: Vec::new(),
        };
        let state = Arc::new(State {
            name: name.to_owned(),
            script: Mutex::new(script),
            releases: Semaphore::new(0),
            running: Arc::default(),
            held: Arc::default(),
            kv_usage: AtomicU32::new(KV_USAGE),
            is_stock_vllm: AtomicBool::new(false),
        });
        let state_of_server = Arc::clone(&state);
        let server =
            TcpServer::start(move |stream| handle_connection(stream, Arc::clone(&state_of_server)));
        let server = server.await?;
        Ok(Self {
            address: server.address(),
            state,
            server: Some(server),
        })
    }

    /// Starts one replica for each name.
    pub async fn start_all<const N: usize>(names: [&str; N]) -> anyhow::Result<[Self; N]> {
        let replicas = try_join_all(names.map(Self::start)).await?;
        replicas
            .try_into()
            .map_err(|_| anyhow::anyhow!("a replica is missing"))
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name, as in [`SERVED_BY`].
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Sets the reaction to every request from now on.
    pub fn set_action(&self, action: Action) {
        lock(&self.state.script).default = action;
    }

    /// Sets the reaction to the next request without one of its own.
    pub fn push_action(&self, action: Action) {
        lock(&self.state.script).next.push_back(action);
    }

    /// Sets the share of the KV cache in use, as the metrics tell it.
    pub fn set_kv_usage(&self, share: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is from 0 to 1"
        )]
        let thousandths = (share * 1e3).round() as u32;
        self.state.kv_usage.store(thousandths, Ordering::SeqCst);
    }

    /// Makes chats tell no cached tokens, as those of vLLM without `--enable-prompt-tokens-details`. Responses still tell them.
    pub fn answer_as_stock_vllm(&self) {
        self.state.is_stock_vllm.store(true, Ordering::SeqCst);
    }

    /// Makes the replica disconnect after it has read a body with this text, as an engine that crashes does.
    pub fn break_on(&self, text: &str) {
        lock(&self.state.script).deadly = Some(text.to_owned());
    }

    /// Number of requests on which the replica broke because of their text.
    pub fn broken(&self) -> usize {
        let script = lock(&self.state.script);
        let is_deadly = |request: &&ReceivedRequest| script.is_deadly(&request.body);
        script.received.iter().filter(is_deadly).count()
    }

    /// Releases `count` requests, held now or later.
    pub fn release(&self, count: usize) {
        self.state.releases.add_permits(count);
    }

    /// Releases every request, held now or later, and responds at once from now on.
    pub fn release_all(&self) {
        self.set_action(Action::Respond);
        self.release(UNLIMITED);
    }

    /// Number of requests that are held now.
    pub fn held(&self) -> usize {
        Arc::strong_count(&self.state.held) - 1
    }

    /// Waits until the replica holds exactly `count` requests.
    pub async fn wait_until_holding(&self, count: usize) -> anyhow::Result<()> {
        let condition = format!("{} to hold {count} requests", self.name());
        wait_until(WAIT_MAX, &condition, || ready(self.held() == count)).await
    }

    /// Every request that arrived whole, in order of arrival, without the service's requests for metrics and models.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        lock(&self.state.script).received.clone()
    }

    /// Ends the replica as a crash does: closes the port and cuts every connection.
    pub fn kill(&mut self) {
        self.server = None;
    }
}

async fn handle_connection(stream: TcpStream, state: Arc<State>) {
    let service = service_fn(|request| handle_request(Arc::clone(&state), request));
    let served =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    drop(served.await); // an error is a client that disconnected, or `Action::Disconnect`
}

async fn handle_request(
    state: Arc<State>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::io::Error> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let is_responses = path == RESPONSES_PATH;
    if path == "/metrics" {
        return Ok(state.respond(200, "text/plain", text_body(state.metrics())));
    }
    if path == "/v1/models" {
        return Ok(state.respond(200, "application/json", text_body(models())));
    }
    let running = Arc::clone(&state.running);
    let body = body.collect().await.map_err(std::io::Error::other)?;
    let body = body.to_bytes();
    let wants_stream = serde_json::from_slice::<Value>(&body)
        .is_ok_and(|body| body.get("stream").and_then(Value::as_bool) == Some(true));
    let tokens = prompt_tokens(&body);
    let (action, cached_tokens) = {
        // One lock for both, so that the n-th request received gets the n-th action.
        let mut script = lock(&state.script);
        let is_cached = script.received.iter().any(|earlier| earlier.body == body);
        let is_deadly = script.is_deadly(&body);
        script.received.push(ReceivedRequest {
            path,
            headers: head.headers,
            body,
        });
        let action = match is_deadly {
            true => Action::Disconnect,
            false => script.next.pop_front().unwrap_or(script.default),
        };
        (action, if is_cached { tokens } else { 0 })
    };
    let names_cached_tokens = !state.is_stock_vllm.load(Ordering::SeqCst);
    let usage = usage(tokens, names_cached_tokens.then_some(cached_tokens));
    match action {
        Action::Disconnect => return Err(std::io::Error::other("disconnected by the test")),
        Action::Status(status) => {
            let error = json!({ "error": { "message": "set by the test", "type": "server_error", "code": status } });
            return Ok(state.respond(status, "application/json", text_body(error.to_string())));
        }
        Action::Hold => hold(&state).await,
        Action::Respond | Action::Stream => {}
    }
    if action == Action::Stream || wants_stream {
        let body = stream_body(&state, running, action == Action::Stream, &usage);
        return Ok(state.respond(200, "text/event-stream", body));
    }
    if is_responses {
        let response = state.stored_response(tokens, cached_tokens);
        return Ok(state.respond(200, "application/json", text_body(response.to_string())));
    }
    let completion = json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "one two" }, "finish_reason": "stop" }],
        "usage": usage,
    });
    Ok(state.respond(200, "application/json", text_body(completion.to_string())))
}

/// Waits until the test releases the request, or the client disconnects.
async fn hold(state: &State) {
    let _held = Arc::clone(&state.held);
    if let Ok(permit) = state.releases.acquire().await {
        permit.forget();
    }
}

fn text_body(text: String) -> Body {
    Full::new(Bytes::from(text)).boxed_unsync()
}

/// A streamed response in three chunks: the first at once, the others after the release if the request is held.
fn stream_body(state: &Arc<State>, running: Arc<()>, is_held: bool, usage: &Value) -> Body {
    let chunk = |text: &str| {
        let chunk = json!({ "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "content": text } }] });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let (first, second) = (chunk("one "), chunk("two"));
    let usage = json!({ "object": "chat.completion.chunk", "choices": [], "usage": usage });
    let last = Bytes::from(format!("data: {usage}\n\ndata: [DONE]\n\n"));
    let state = Arc::clone(state);
    let rest = stream::once(async move {
        if is_held {
            hold(&state).await;
        }
        stream::iter([second, last])
    });
    let chunks = stream::iter([first]).chain(rest.flatten());
    let frames = chunks.map(move |bytes| {
        let _running = &running; // counts until the last chunk is sent
        Ok(Frame::data(bytes))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// The list of models, which names no adapter.
fn models() -> String {
    json!({ "object": "list", "data": [{ "id": MODEL, "object": "model" }] }).to_string()
}

/// The number of prompt tokens that the replica reports for a request body.
pub fn prompt_tokens(body: &[u8]) -> usize {
    body.len().div_ceil(TOKEN_BYTES)
}

fn usage(prompt_tokens: usize, cached_tokens: Option<usize>) -> Value {
    let details = cached_tokens.map(|tokens| json!({ "cached_tokens": tokens }));
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 2,
        "total_tokens": prompt_tokens + 2,
        "prompt_tokens_details": details,
    })
}

impl State {
    fn respond(&self, status: u16, content_type: &'static str, body: Body) -> Response<Body> {
        let mut response = Response::new(body);
        if let Ok(status) = hyper::StatusCode::from_u16(status) {
            *response.status_mut() = status;
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Ok(name) = self.name.parse() {
            headers.insert(SERVED_BY, name);
        }
        response
    }

    fn stored_response(&self, prompt_tokens: usize, cached_tokens: usize) -> Value {
        json!({
            "id": format!("resp_{}", self.name),
            "object": "response",
            "output": [],
            "usage": {
                "input_tokens": prompt_tokens,
                "input_tokens_details": { "cached_tokens": cached_tokens },
                "output_tokens": 2,
            },
        })
    }

    /// The metrics that the service reads, in vLLM's format.
    fn metrics(&self) -> String {
        let running = Arc::strong_count(&self.running) - 1;
        let kv_usage = f64::from(self.kv_usage.load(Ordering::SeqCst)) / 1e3;
        format!(
            "vllm:num_requests_waiting{{engine=\"0\"}} 0\n\
             vllm:num_requests_running{{engine=\"0\"}} {running}\n\
             vllm:kv_cache_usage_perc{{engine=\"0\"}} {kv_usage}\n\
             vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"10000\"}} 1\n"
        )
    }
}
