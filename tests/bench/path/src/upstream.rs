//! Replicas that respond at once, so that a measurement shows the path to them.
//!
//! The replicas read the prompt to its end without parsing it, and run in the process of the load generator, whose CPU time does not
//! count. Each chunk of a stream is a write of its own, as an engine sends it: a few large writes would hide the cost of a
//! thousand chunks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use axum::{Router, serve};
use futures_util::stream::{self, StreamExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

/// A chunk of a stream.
const CHUNK: &[u8] = b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
    \"model\":\"llama-3.1-8b\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"finish_reason\":null}]}\n\n";
const LAST: &[u8] = b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
    \"model\":\"llama-3.1-8b\",\"choices\":[],\"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":10,\
    \"total_tokens\":1010,\"prompt_tokens_details\":{\"cached_tokens\":0}}}\n\ndata: [DONE]\n\n";
/// A whole response.
const WHOLE: &[u8] = b"{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"llama-3.1-8b\",\
    \"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"word\"},\"finish_reason\":\"stop\"}],\
    \"usage\":{\"prompt_tokens\":1000,\"completion_tokens\":1,\"total_tokens\":1001,\
    \"prompt_tokens_details\":{\"cached_tokens\":0}}}";
/// Metrics for the service's probes: an idle engine.
const METRICS: &[u8] = b"vllm:num_requests_running{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0\n\
    vllm:num_requests_waiting{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0\n\
    vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"llama-3.1-8b\"} 0.0\n\
    vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"27000\"} 1.0\n\
    vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1.0\n";
/// Model information that other routers request before they use a replica.
const ABOUT: &[u8] = b"{\"model_path\":\"llama-3.1-8b\",\"served_model_name\":\"llama-3.1-8b\",\
    \"model_id\":\"llama-3.1-8b\",\"is_generation\":true,\"status\":\"ok\",\
    \"data\":[{\"id\":\"llama-3.1-8b\",\"object\":\"model\"}]}";

/// Connections that may wait for the listener of many replicas: all probes of a router come at once.
const BACKLOG: u32 = 32_768;

/// Some replicas; they end when the value is dropped.
#[derive(Debug)]
pub struct Upstream {
    addresses: Vec<SocketAddr>,
    chunks: Arc<AtomicU32>,
    tasks: JoinSet<std::io::Result<()>>,
}

impl Upstream {
    /// Starts this many replicas on free loopback ports.
    ///
    /// # Errors
    /// When there is no free port.
    pub async fn start(replicas: usize) -> anyhow::Result<Self> {
        let mut upstream = Self {
            addresses: Vec::new(),
            chunks: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..replicas {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            upstream.addresses.push(listener.local_addr()?);
            upstream.serve(listener);
        }
        Ok(upstream)
    }

    /// Starts this many replicas at one port of addresses of their own, behind one listener of the loopback device.
    ///
    /// # Errors
    /// When there is no free port, or the system has no such listeners (Linux before 5.7, other systems).
    pub fn start_at_addresses(replicas: usize) -> anyhow::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind_device(Some(b"lo"))?;
        socket.bind((Ipv4Addr::UNSPECIFIED, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let port = listener.local_addr()?.port();
        let addresses = (1..=replicas)
            .map(|number| Ok(SocketAddr::from((address(u32::try_from(number)?), port))));
        let addresses: anyhow::Result<Vec<SocketAddr>> = addresses.collect();
        let mut upstream = Self {
            addresses: addresses?,
            chunks: Arc::default(),
            tasks: JoinSet::new(),
        };
        upstream.serve(listener);
        Ok(upstream)
    }

    fn serve(&mut self, listener: TcpListener) {
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new()
            .fallback(respond)
            .with_state(Arc::clone(&self.chunks));
        self.tasks
            .spawn(async move { serve(listener, router).await });
    }

    /// Addresses of the replicas.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Sets the number of chunks of each response, besides the last one with the usage; 0 for a whole response.
    pub fn answer_in(&self, chunks: u32) {
        self.chunks.store(chunks, Ordering::Relaxed);
    }
}

/// The address of a replica: 127.1.0.1 and those after it.
fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + number)
}

async fn respond(State(chunks): State<Arc<AtomicU32>>, request: Request) -> Response {
    let chunks = chunks.load(Ordering::Relaxed);
    let (content_type, body) = match request.uri().path() {
        "/v1/chat/completions" if chunks == 0 => ("application/json", WHOLE.into()),
        "/v1/chat/completions" => ("text/event-stream", streamed(chunks)),
        "/metrics" => ("text/plain", METRICS.into()),
        _ => ("application/json", ABOUT.into()),
    };
    let mut prompt = request.into_body().into_data_stream();
    while let Some(Ok(_)) = prompt.next().await {}
    ([(CONTENT_TYPE, content_type)], body).into_response()
}

/// The server writes its buffer when the stream has no chunk ready, so each chunk waits once.
fn streamed(chunks: u32) -> Body {
    let chunks =
        stream::iter(std::iter::repeat_n(CHUNK, chunks as usize)).chain(stream::iter([LAST]));
    Body::from_stream(chunks.then(async |chunk| {
        tokio::task::yield_now().await;
        Ok::<_, std::convert::Infallible>(chunk)
    }))
}
