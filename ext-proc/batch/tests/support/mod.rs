//! A fake gateway, and inputs.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isotherm_batch::completion_window::CompletionWindow;
use isotherm_batch::endpoint::Endpoint;
use isotherm_batch::gateway::{Gateway, GatewayConfig};
use isotherm_batch::limits::Limits;
use isotherm_batch::store::{BatchRow, FileSink, NewBatch, NewFile, Store};
use isotherm_batch::worker::WorkerConfig;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

/// Behaviour of the gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    /// Share of answers with status 429.
    pub(crate) refused: f64,
    /// Share of answers with status 503.
    pub(crate) failed: f64,
    /// Share of requests whose connection breaks without an answer, after they were served.
    pub(crate) broken: f64,
    /// Longest time of an answer.
    pub(crate) time_ms_max: u64,
    /// Whether no request is answered at all.
    pub(crate) is_silent: bool,
}

impl Behaviour {
    pub(crate) const GOOD: Self = Self {
        refused: 0.0,
        failed: 0.0,
        broken: 0.0,
        time_ms_max: 5,
        is_silent: false,
    };
    pub(crate) const BAD: Self = Self {
        refused: 0.1,
        failed: 0.1,
        broken: 0.05,
        time_ms_max: 20,
        is_silent: false,
    };
}

/// A request that the gateway has served.
#[derive(Clone, Debug)]
pub(crate) struct ServedRequest {
    pub(crate) tier: String,
    pub(crate) authorization: Option<String>,
    pub(crate) deadline_s: i64,
}

/// A gateway that answers each request with its body.
#[derive(Clone, Debug)]
pub(crate) struct FakeGateway {
    pub(crate) address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    served: Arc<Mutex<BTreeMap<String, Vec<ServedRequest>>>>,
    arrived: Arc<Mutex<Vec<String>>>,
    random: Arc<Mutex<StdRng>>,
}

impl FakeGateway {
    pub(crate) async fn start(seed: u64, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = Self {
            address: listener.local_addr().unwrap(),
            behaviour: Arc::new(Mutex::new(behaviour)),
            served: Arc::default(),
            arrived: Arc::default(),
            random: Arc::new(Mutex::new(StdRng::seed_from_u64(seed))),
        };
        let accepting = gateway.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().serve(stream));
            }
        });
        gateway
    }

    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    /// Requests by their `x-client-request-id`.
    pub(crate) fn served(&self) -> BTreeMap<String, Vec<ServedRequest>> {
        self.served.lock().unwrap().clone()
    }

    /// `x-client-request-id` of each request, in the order of arrival.
    pub(crate) fn arrived(&self) -> Vec<String> {
        self.arrived.lock().unwrap().clone()
    }

    async fn serve(self, stream: TcpStream) {
        let service = service_fn(|request| self.clone().answer(request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let _ = connection.await; // a broken connection is part of the test
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body
            .collect()
            .await
            .map_err(std::io::Error::other)?
            .to_bytes();
        let header = |name: &str| {
            let value = head.headers.get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        let id = header("x-client-request-id").unwrap();
        self.arrived.lock().unwrap().push(id.clone());
        let behaviour = *self.behaviour.lock().unwrap();
        let (dice, time_ms) = {
            let mut random = self.random.lock().unwrap();
            (
                random.random::<f64>(),
                random.random_range(0..=behaviour.time_ms_max),
            )
        };
        tokio::time::sleep(Duration::from_millis(time_ms)).await;
        if behaviour.is_silent {
            std::future::pending::<Infallible>().await;
        }
        let status = |status: u16, text: &str| {
            let response = Response::builder()
                .status(status)
                .header("retry-after", "0");
            response
                .body(Full::from(text.to_owned()))
                .map_err(std::io::Error::other)
        };
        if dice < behaviour.refused {
            return status(429, "{}");
        }
        if dice < behaviour.refused + behaviour.failed {
            return status(503, "no healthy upstream");
        }
        self.served
            .lock()
            .unwrap()
            .entry(id)
            .or_default()
            .push(ServedRequest {
                tier: header("x-tier").unwrap(),
                authorization: header("authorization"),
                deadline_s: header("x-deadline").unwrap().parse().unwrap(),
            });
        if dice < behaviour.refused + behaviour.failed + behaviour.broken {
            return Err(std::io::Error::other("broken by the test"));
        }
        let body: Value = serde_json::from_slice(&body).unwrap();
        match body["answer"].as_str() {
            Some("nothing") => std::future::pending::<()>().await,
            Some("break") => return Err(std::io::Error::other("broken by the line")),
            _ => {}
        }
        let text = body["answer"].as_str();
        if let Some(code) = body["answer_status"].as_u64() {
            let text = text.unwrap_or("{\"error\":{\"message\":\"bad\"}}");
            return status(u16::try_from(code).unwrap(), text);
        }
        let answer = json!({ "echo": body["n"] }).to_string();
        Ok(Response::new(Full::from(answer)))
    }
}

/// The configuration of a worker with short leases.
pub(crate) fn worker_config(gateway: SocketAddr, limits: Limits) -> WorkerConfig {
    let config = GatewayConfig {
        url: format!("http://{gateway}"),
        token_file: None,
        ca_file: None,
        response_time_max: Duration::from_secs(20),
        response_bytes_max: limits.response_bytes_max,
        tenant_header: None,
    };
    WorkerConfig {
        gateway: Gateway::new(config, 16).unwrap(),
        status: None,
        limits,
        concurrency_max: 16,
        lease: Duration::from_millis(1_500),
        drain_time_max: Duration::from_secs(2),
        only: None,
        counters: Arc::default(),
    }
}

/// A line of an input file.
pub(crate) fn line(number: usize) -> String {
    let body = json!({ "model": "m", "n": number });
    let line = json!({ "custom_id": format!("c{number}"), "method": "POST", "url": "/v1/completions", "body": body });
    format!("{line}\n")
}

/// Stores an input file of the owner `o`, and makes a batch of it.
pub(crate) async fn submit(store: &Store, input: &str, window: &str) -> String {
    submit_as(store, "o", input, window).await
}

/// Stores an input file of an owner, and makes a batch of it.
pub(crate) async fn submit_as(store: &Store, owner: &str, input: &str, window: &str) -> String {
    let file = NewFile {
        id: format!("file-{:016x}", rand::random::<u64>()),
        owner: owner.to_owned(),
        name: "input.jsonl".to_owned(),
    };
    let mut sink = FileSink::begin(store, &file, &Limits::default())
        .await
        .unwrap();
    sink.write(input.as_bytes()).await.unwrap();
    sink.finish(None).await.unwrap();
    let window: CompletionWindow = window.parse().unwrap();
    let batch = NewBatch {
        id: format!("batch_{:016x}", rand::random::<u64>()),
        owner: owner.to_owned(),
        endpoint: Endpoint::Completions,
        input_file_id: file.id,
        window,
        metadata: None,
        output_ttl_s: None,
        output_path: None,
    };
    store.create_batch(&batch).await.unwrap();
    batch.id
}

/// Waits until a batch has ended.
pub(crate) async fn wait_for_end(store: &Store, id: &str) -> BatchRow {
    for _ in 0..3_000 {
        let batch = store.batch(None, id).await.unwrap().unwrap();
        if batch.status.is_final() {
            return batch;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let batch = store.batch(None, id).await.unwrap();
    panic!("the batch does not end: {batch:?}");
}

/// The lines of a file of a batch.
pub(crate) async fn lines(store: &Store, file: Option<&str>) -> Vec<Value> {
    let Some(file) = file else { return Vec::new() };
    let file = store.file("o", file).await.unwrap().unwrap();
    let mut lines = Vec::new();
    loop {
        let after = lines.last().map_or(0, |(number, _)| *number);
        let page = store.file_lines(&file, after, 100).await.unwrap();
        if page.is_empty() {
            break;
        }
        lines.extend(page);
    }
    let total: usize = lines.iter().map(|(_, line)| line.len()).sum();
    assert_eq!(file.bytes, total as u64);
    lines
        .iter()
        .map(|(_, line)| serde_json::from_slice(line).unwrap())
        .collect()
}
