//! A fake engine for tests: it serves the metrics page, the error or the silence that a test sets.

#![allow(dead_code, unreachable_pub, reason = "every test uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

pub mod service;
pub mod tls_engine;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The response of a fake engine.
#[derive(Clone, Debug)]
pub enum FakeResponse {
    /// A page at one path; 404 at every other.
    Page(&'static str, String),
    /// Pages at some paths; 404 at every other.
    Pages(Vec<(&'static str, String)>),
    /// A page at one path; JSON at every other.
    PageAmongJson(&'static str, String),
    /// An HTTP status.
    Status(u16),
    /// A page without end.
    Endless,
    /// A page at one path, after a time.
    Slow(Duration, &'static str, String),
    /// A page that begins and does not go on.
    Unfinished,
    /// No response.
    Hang,
}

/// A metrics page of vLLM with `waiting` queued requests.
pub fn vllm(waiting: u32) -> FakeResponse {
    let page = format!(
        "vllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n\
         vllm:num_requests_running{{engine=\"0\"}} 2\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\n\
         vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"}} 1\n"
    );
    FakeResponse::Page("/metrics", page)
}

/// A vLLM engine that lists these adapters and runs requests for some of them, in one slot.
pub fn vllm_with_adapters(listed: &[&str], running: &str) -> FakeResponse {
    let FakeResponse::Page(path, page) = vllm(0) else {
        unreachable!("it is one page");
    };
    let series = |running: &str, seconds: u32| {
        format!(
            "vllm:lora_requests_info{{max_lora=\"1\",running_lora_adapters=\"{running}\",\
             waiting_lora_adapters=\"\"}} {seconds}\n"
        )
    };
    let page = page + &series(running, 1_700_000_002) + &series("old", 1_700_000_001);
    let card = |id: &str, parent: Option<&str>| serde_json::json!({ "id": id, "parent": parent });
    let mut cards = vec![card("base", None)];
    cards.extend(listed.iter().map(|id| card(id, Some("base"))));
    let models = serde_json::json!({ "object": "list", "data": cards });
    FakeResponse::Pages(vec![(path, page), ("/v1/models", models.to_string())])
}

/// A running fake engine. Dropping it stops it.
#[derive(Debug)]
pub struct FakeEngine {
    /// The address of the engine.
    pub addr: SocketAddr,
    response: watch::Sender<FakeResponse>,
    requests: Arc<AtomicU32>,
    paths: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

impl FakeEngine {
    /// Starts an engine on a free port.
    pub async fn start(response: FakeResponse) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (response, receiver) = watch::channel(response);
        let requests = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&requests);
        let paths = Arc::new(Mutex::default());
        let seen: Arc<Mutex<Vec<String>>> = Arc::clone(&paths);
        let app = Router::new().fallback(move |uri: Uri| {
            count.fetch_add(1, Ordering::SeqCst);
            seen.lock().unwrap().push(uri.path().to_owned());
            let response = receiver.borrow().clone();
            respond(uri, response)
        });
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            addr,
            response,
            requests,
            paths,
            server,
        }
    }

    /// Sets the response to later requests.
    pub fn set_response(&self, response: FakeResponse) {
        self.response.send_replace(response);
    }

    /// Number of requests for a path so far.
    pub fn count_of(&self, path: &str) -> usize {
        let paths = self.paths.lock().unwrap();
        paths.iter().filter(|seen| *seen == path).count()
    }

    /// Number of requests so far.
    pub fn request_count(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(uri: Uri, response: FakeResponse) -> Response {
    match response {
        FakeResponse::Page(path, page) | FakeResponse::PageAmongJson(path, page)
            if uri.path() == path =>
        {
            page.into_response()
        }
        FakeResponse::Pages(pages) => {
            let page = pages.into_iter().find(|(path, _)| uri.path() == *path);
            page.map_or(StatusCode::NOT_FOUND.into_response(), |(_, page)| {
                page.into_response()
            })
        }
        FakeResponse::Page(..) => StatusCode::NOT_FOUND.into_response(),
        FakeResponse::PageAmongJson(..) => "[]".into_response(),
        FakeResponse::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        FakeResponse::Endless => {
            let line = bytes::Bytes::from(vec![b'x'; 1 << 20]);
            let lines =
                futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(line.clone()));
            Body::from_stream(lines).into_response()
        }
        FakeResponse::Slow(after, path, page) => {
            tokio::time::sleep(after).await;
            if uri.path() == path {
                page.into_response()
            } else {
                StatusCode::NOT_FOUND.into_response()
            }
        }
        FakeResponse::Unfinished => {
            let first = bytes::Bytes::from_static(b"vllm:num_requests_waiting 0\n");
            let first = futures_util::stream::iter([Ok::<_, std::io::Error>(first)]);
            let rest = futures_util::stream::pending();
            Body::from_stream(futures_util::StreamExt::chain(first, rest)).into_response()
        }
        FakeResponse::Hang => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            StatusCode::OK.into_response()
        }
    }
}

/// Waits until a condition holds, for ten seconds at most.
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}
