//! A fake engine for tests: it serves a metrics page that the test sets, as slowly and as wrongly as it likes.

#![allow(dead_code, unreachable_pub, reason = "every test uses its own part")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

pub mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a fake engine answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// This page, at this path; 404 elsewhere.
    Page(&'static str, String),
    /// This page at one path, JSON at every other.
    PageAmongJson(&'static str, String),
    /// This status.
    Status(u16),
    /// A page without end.
    Endless,
    /// Nothing, ever.
    Hang,
}

/// A page of vLLM with this many requests waiting.
pub fn vllm(waiting: u32) -> Answer {
    let page = format!(
        "vllm:num_requests_waiting{{engine=\"0\"}} {waiting}\n\
         vllm:num_requests_running{{engine=\"0\"}} 2\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} 0.5\n\
         vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"}} 1\n"
    );
    Answer::Page("/metrics", page)
}

/// A running fake engine; it stops when it is dropped.
#[derive(Debug)]
pub struct FakeEngine {
    /// Where it listens.
    pub addr: SocketAddr,
    answer: watch::Sender<Answer>,
    asked: Arc<AtomicU32>,
    server: JoinHandle<()>,
}

impl FakeEngine {
    /// Starts one on a free port.
    pub async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (answer, receiver) = watch::channel(answer);
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        let app = Router::new().fallback(move |uri: Uri| {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = receiver.borrow().clone();
            respond(uri, answer)
        });
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            addr,
            answer,
            asked,
            server,
        }
    }

    /// Changes what it answers from now on.
    pub fn answer(&self, answer: Answer) {
        self.answer.send_replace(answer);
    }

    /// How many requests it has had.
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn respond(uri: Uri, answer: Answer) -> Response {
    match answer {
        Answer::Page(path, page) | Answer::PageAmongJson(path, page) if uri.path() == path => {
            page.into_response()
        }
        Answer::Page(..) => StatusCode::NOT_FOUND.into_response(),
        Answer::PageAmongJson(..) => "[]".into_response(),
        Answer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Endless => {
            let line = bytes::Bytes::from(vec![b'x'; 1 << 20]);
            let lines =
                futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(line.clone()));
            Body::from_stream(lines).into_response()
        }
        Answer::Hang => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            StatusCode::OK.into_response()
        }
    }
}

/// Waits until `holds`, at most ten seconds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never happened: {what}");
}
