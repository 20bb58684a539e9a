//! Replicas that answer at once, so that what is measured is the way to them.
//!
//! They read the prompt to its end and look at nothing, and run in the process of the load generator, whose CPU time
//! is not counted. Each chunk of an answer is written on its own: an upstream that had the whole answer ready would
//! put a thousand chunks into a few writes, and their cost would not be seen.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// About what a chunk of a real stream has.
const CHUNK: &[u8] = b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
    \"model\":\"llama-3.1-8b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
const LAST: &[u8] = b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
    \"model\":\"llama-3.1-8b\",\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":10,\
    \"total_tokens\":1010,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n";
/// An answer that is not a stream.
const WHOLE: &[u8] = b"{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"llama-3.1-8b\",\
    \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"word\"},\"finish_reason\":\"stop\"}],\
    \"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":1,\"total_tokens\":1001,\
    \"prompt_tokens_details\":{\"cached_tokens\":0}}}";
/// Metrics for the service's probes: an idle engine.
const METRICS: &[u8] = b"vllm:num_requests_running{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0\n\
    vllm:num_requests_waiting{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0\n\
    vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0\n";
/// Model information that other routers request before they use a replica.
const ABOUT: &[u8] = b"{\"model_path\":\"llama-3.1-8b\",\"served_model_name\":\"llama-3.1-8b\",\
    \"model_id\":\"llama-3.1-8b\",\"is_generation\":true,\"status\":\"ok\",\
    \"data\":[{\"id\":\"llama-3.1-8b\",\"object\":\"model\"}]}";

/// Some replicas; they end when this is dropped.
#[derive(Debug)]
pub struct Upstream {
    addresses: Vec<SocketAddr>,
    chunks: Arc<AtomicU32>,
    _tasks: JoinSet<()>,
}

impl Upstream {
    /// Starts this many replicas on free loopback ports.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(replicas: usize) -> anyhow::Result<Self> {
        let chunks = Arc::new(AtomicU32::new(0));
        let mut tasks = JoinSet::new();
        let mut addresses = Vec::new();
        for _ in 0..replicas {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?);
            tasks.spawn(accept(listener, Arc::clone(&chunks)));
        }
        Ok(Self {
            addresses,
            chunks,
            _tasks: tasks,
        })
    }

    /// Where they are.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// In how many chunks they answer from now on, besides the last one with the usage; 0 for a
    /// whole answer that is not a stream.
    pub fn answer_in(&self, chunks: u32) {
        self.chunks.store(chunks, Ordering::Relaxed);
    }
}

async fn accept(listener: TcpListener, chunks: Arc<AtomicU32>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(serve(stream, Arc::clone(&chunks)));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, chunks: Arc<AtomicU32>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(request, chunks.load(Ordering::Relaxed)));
    // A client that hangs up is no concern of a replica.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(request: Request<Incoming>, chunks: u32) -> Result<Response<Answer>, Infallible> {
    let (content_type, answer) = match request.uri().path() {
        "/v1/chat/completions" if chunks == 0 => ("application/json", Answer::new(0, WHOLE)),
        "/v1/chat/completions" => ("text/event-stream", Answer::new(chunks, LAST)),
        "/metrics" => ("text/plain", Answer::new(0, METRICS)),
        _ => ("application/json", Answer::new(0, ABOUT)),
    };
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let mut response = Response::new(answer);
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static(content_type),
    );
    Ok(response)
}

/// A response of several chunks and a last one.
struct Answer {
    chunks: u32,
    last: Option<&'static [u8]>,
    written: bool,
}

impl Answer {
    fn new(chunks: u32, last: &'static [u8]) -> Self {
        Self {
            chunks,
            last: Some(last),
            written: true,
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.written {
            // The server writes out what it has when there is nothing more at the moment.
            self.written = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = if self.chunks > 0 {
            self.chunks -= 1;
            self.written = false;
            Some(CHUNK)
        } else {
            self.last.take()
        };
        Poll::Ready(piece.map(|piece| Ok(Frame::data(Bytes::from_static(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none()
    }
}
