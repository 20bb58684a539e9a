//! A replica that does what a test tells it: answers, holds requests back, dies.
//!
//! Where a test is about who gets a request and when, an engine that takes its own time only adds doubt. This one
//! answers as vLLM does (the form of its answers, its metrics page), keeps what it saw, and holds a request until the
//! test lets go of it. Its cache is as simple as can be: it has a prompt when it saw the very same request before.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isotherm_harness::wait_until;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use twox_hash::XxHash3_64;

use crate::WAIT_MAX;
use crate::engine_response::{completion, usage, wants_stream};

/// The response header in which a scripted replica names itself.
pub const SERVED_BY: &str = "x-served-by";

/// More than any test sends, so that once opened the gate stays open.
const OPEN: usize = 1 << 20;

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answers at once.
    Respond,
    /// Answers when let go.
    Hold,
    /// Begins a streamed answer, and ends it when let go.
    Stream,
    /// Answers with this status and an error in OpenAI's form.
    Status(u16),
    /// Closes the connection without an answer.
    Disconnect,
}

/// A request that it saw.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The path.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// A running replica. It ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedReplica {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    script: Mutex<Script>,
    seen: Mutex<Vec<ReceivedRequest>>,
    /// The hashes of the bodies that it saw.
    known: Mutex<HashSet<u64>>,
    gate: Semaphore,
    held: AtomicUsize,
    running: AtomicUsize,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Script {
    next: VecDeque<Action>,
    always: Action,
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

impl ScriptedReplica {
    /// Starts one on a free port that answers everything at once.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            script: Mutex::new(Script {
                next: VecDeque::new(),
                always: Action::Respond,
            }),
            seen: Mutex::default(),
            known: Mutex::default(),
            gate: Semaphore::new(0),
            held: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self {
            address,
            shared,
            server: Some(server),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its name, as in [`SERVED_BY`].
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// What it does with every request from now on.
    pub fn set_action(&self, action: Action) {
        lock(&self.shared.script).always = action;
    }

    /// What it does with the next request, after those that were planned before.
    pub fn push_action(&self, action: Action) {
        lock(&self.shared.script).next.push_back(action);
    }

    /// Lets go of so many requests, of those that are held and those that will be.
    pub fn release(&self, count: usize) {
        self.shared.gate.add_permits(count);
    }

    /// Lets go of everything, and holds nothing from now on.
    pub fn release_all(&self) {
        self.set_action(Action::Respond);
        self.release(OPEN);
    }

    /// What its metrics page says of its own queue.
    pub fn set_waiting(&self, count: usize) {
        self.shared.waiting.store(count, Ordering::SeqCst);
    }

    /// How many requests are held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Waits until exactly so many are.
    ///
    /// # Errors
    /// When that takes longer than anything should.
    pub async fn wait_until_holding(&self, count: usize) -> anyhow::Result<()> {
        let what = format!("{} to hold {count} requests", self.name());
        wait_until(WAIT_MAX, &what, || std::future::ready(self.held() == count)).await
    }

    /// Every request that it saw to its end, in order of arrival, those for its metrics page not counted.
    #[must_use]
    pub fn received(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.seen).clone()
    }

    /// Ends it as a crash does: the port is closed and every connection is cut.
    pub fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            // With the server goes its set of connections, and each takes its socket along.
            server.abort();
        }
    }
}

impl Drop for ScriptedReplica {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(converse(stream, Arc::clone(&shared)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(|request| answer(Arc::clone(&shared), request));
    let served = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
    // An error is a client that went away, or `Action::Disconnect`.
    drop(served);
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::io::Error> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path == "/metrics" {
        return Ok(whole(&shared, 200, "text/plain", shared.page()));
    }
    let running = Counted::new(&shared, |shared| &shared.running);
    let body = body
        .collect()
        .await
        .map_err(std::io::Error::other)?
        .to_bytes();
    let streams = wants_stream(&body);
    let (action, cached) = {
        // One lock for both, so that the n-th request seen is the n-th that was planned for.
        let mut script = lock(&shared.script);
        let cached = !lock(&shared.known).insert(XxHash3_64::oneshot(&body));
        lock(&shared.seen).push(ReceivedRequest {
            path,
            headers: head.headers,
            body,
        });
        (script.next.pop_front().unwrap_or(script.always), cached)
    };
    match action {
        Action::Disconnect => return Err(std::io::Error::other("told to die")),
        Action::Status(status) => {
            let error = json!({ "error": { "message": "as the test wants it", "type": "server_error", "code": status } });
            return Ok(whole(
                &shared,
                status,
                "application/json",
                error.to_string(),
            ));
        }
        Action::Hold => hold(&shared).await,
        Action::Respond | Action::Stream => {}
    }
    if action == Action::Stream || streams {
        return Ok(events(&shared, running, action == Action::Stream, cached));
    }
    Ok(whole(
        &shared,
        200,
        "application/json",
        completion(cached).to_string(),
    ))
}

/// Waits until the test lets go; a client that goes away first leaves no trace.
async fn hold(shared: &Arc<Shared>) {
    let _held = Counted::new(shared, |shared| &shared.held);
    if let Ok(permit) = shared.gate.acquire().await {
        permit.forget();
    }
}

/// A streamed answer in three pieces: the first at once, the others after the gate, where there is one.
fn events(shared: &Arc<Shared>, running: Counted, gated: bool, cached: bool) -> Response<Body> {
    let piece = |text: &str| {
        let chunk = json!({ "object": "chat.completion.chunk", "choices": [{ "index": 0, "delta": { "content": text } }] });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let (first, second) = (piece("one "), piece("two"));
    let usage = json!({ "object": "chat.completion.chunk", "choices": [], "usage": usage(cached) });
    let last = Bytes::from(format!("data: {usage}\n\ndata: [DONE]\n\n"));
    let shared_for_rest = Arc::clone(shared);
    let rest: Pin<Box<dyn Stream<Item = Bytes> + Send>> = Box::pin(
        stream::once(async move {
            if gated {
                hold(&shared_for_rest).await;
            }
            stream::iter([second, last])
        })
        .flatten(),
    );
    let frames = stream::iter([first]).chain(rest).map(move |bytes| {
        let _running = &running; // until the last piece is out
        Ok::<_, std::io::Error>(Frame::data(bytes))
    });
    response(
        shared,
        200,
        "text/event-stream",
        BodyFrom::Stream(StreamBody::new(frames).boxed_unsync()),
    )
}

enum BodyFrom {
    Text(String),
    Stream(Body),
}

fn whole(shared: &Shared, status: u16, kind: &'static str, text: String) -> Response<Body> {
    response(shared, status, kind, BodyFrom::Text(text))
}

fn response(shared: &Shared, status: u16, kind: &'static str, body: BodyFrom) -> Response<Body> {
    let body = match body {
        BodyFrom::Text(text) => Full::new(Bytes::from(text))
            .map_err(|never: Infallible| match never {})
            .boxed_unsync(),
        BodyFrom::Stream(body) => body,
    };
    let mut response = Response::new(body);
    if let Ok(status) = hyper::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    let headers = response.headers_mut();
    headers.insert(
        "content-type",
        hyper::header::HeaderValue::from_static(kind),
    );
    if let Ok(name) = shared.name.parse() {
        headers.insert(SERVED_BY, name);
    }
    response
}

impl Shared {
    /// As vLLM writes it.
    fn page(&self) -> String {
        let (waiting, running) = (
            self.waiting.load(Ordering::SeqCst),
            self.running.load(Ordering::SeqCst),
        );
        format!(
            "vllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n\
             vllm:num_requests_running{{engine=\"0\"}} {running}\n\
             vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.1\n\
             vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"10000\"}} 1\n"
        )
    }
}

/// One more, until dropped.
#[derive(Debug)]
struct Counted {
    shared: Arc<Shared>,
    counter: fn(&Shared) -> &AtomicUsize,
}

impl Counted {
    fn new(shared: &Arc<Shared>, counter: fn(&Shared) -> &AtomicUsize) -> Self {
        counter(shared).fetch_add(1, Ordering::SeqCst);
        Self {
            shared: Arc::clone(shared),
            counter,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.counter)(&self.shared).fetch_sub(1, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
