//! The whole service, over its sockets: a fake Envoy in front of it, fake engines behind it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test relies on and does not get is its failure"
)]

mod call;
mod decision_stream;
mod decisions;
mod endpoints;
#[path = "../fake/mod.rs"]
pub mod fake;
mod gateways;
mod metrics;
mod queue;
mod regions;
mod stop;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use isotherm_ext_proc::config::{self, Listen};
use isotherm_ext_proc::pool::{Pool, PoolRegistry};
use isotherm_ext_proc::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};

use call::Call;
use fake::{FakeEngine, vllm, wait_until};

/// Longest time of any wait, after which a test fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A pool whose replicas take one request each.
const ONE_AT_A_TIME: &str = "
pools:
  - model: llama
    cluster: l
    push: outstanding:1
    probe: { interval_ms: 20, timeout_ms: 20000 }
";

/// A running service, which stops when it is dropped.
struct Service {
    pool_registry: Arc<PoolRegistry>,
    channel: Channel,
    admin: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    ended: JoinHandle<anyhow::Result<()>>,
    engines: Vec<FakeEngine>,
}

impl Service {
    /// Starts one with `engines` free replicas in its first pool.
    async fn start(options: &str, engines: usize) -> Self {
        Self::start_on("127.0.0.1:0", options, engines).await
    }

    async fn start_on(listen: &str, options: &str, engines: usize) -> Self {
        let text =
            format!("listen: [\"{listen}\"]\nadmin: {{ listen: \"127.0.0.1:0\" }}\n{options}");
        let config = config::parse(&text).unwrap();
        let server = Server::bind(config, None).await.unwrap();
        let pool_registry = Arc::clone(server.pool_registry());
        let channel = connect(&server.addresses().unwrap()[0]);
        let admin = server.admin_address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(server.run(async { drop(stopped.await) }));
        let mut service = Self {
            pool_registry,
            channel,
            admin,
            stop: Some(stop),
            ended,
            engines: Vec::new(),
        };
        for _ in 0..engines {
            service.add_engine().await;
        }
        service
    }

    /// Adds a replica, and waits until it takes requests.
    async fn add_engine(&mut self) -> SocketAddr {
        let engine = FakeEngine::start(vllm(0)).await;
        let addr = engine.addr;
        let pool = self.pool();
        pool.add_replica(addr).unwrap();
        wait_until("the replica takes requests", || {
            let replicas = pool.replicas();
            replicas
                .iter()
                .any(|r| r.name == addr.to_string() && r.availability.as_ref() == "available")
        })
        .await;
        self.engines.push(engine);
        addr
    }

    fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool_registry.pools()[0])
    }

    /// A request of Envoy's, of which nothing was said yet.
    async fn call(&self) -> Call {
        Call::open(self.channel.clone(), None).await
    }

    /// A chat request for a model.
    async fn chat(&self, model: &str) -> Call {
        let mut call = self.call().await;
        call.headers(&[
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            ("x-isotherm-model", model),
        ])
        .await;
        call
    }

    /// The page of metrics.
    async fn metrics(&self) -> String {
        self.ask("/metrics").await.1
    }

    /// A page of the admin interface: its status, and all of the answer.
    async fn ask(&self, path: &str) -> (u16, String) {
        let mut page = String::new();
        let stream = TcpStream::connect(self.admin).await.unwrap();
        let (mut read, mut write) = stream.into_split();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        write.write_all(request.as_bytes()).await.unwrap();
        read.read_to_string(&mut page).await.unwrap();
        let status = page
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.expect("a status"), page)
    }

    /// Waits until the page of metrics has this line, and returns the page.
    async fn page_with(&self, line: &str) -> String {
        let wait = async {
            loop {
                let page = self.metrics().await;
                if page.lines().any(|found| found == line) {
                    return page;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .unwrap_or_else(|_| panic!("never on the page: {line}"))
    }

    /// Tells it to stop.
    fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for its end.
    async fn ended(self) {
        tokio::time::timeout(PATIENCE, self.ended)
            .await
            .expect("it ends in time")
            .unwrap()
            .unwrap();
    }
}

fn connect(address: &Listen) -> Channel {
    match address {
        Listen::Tcp(addr) => Endpoint::from_shared(format!("http://{addr}"))
            .unwrap()
            .connect_lazy(),
        Listen::Unix(path) => Endpoint::from_shared(format!("unix://{}", path.display()))
            .unwrap()
            .connect_lazy(),
    }
}
