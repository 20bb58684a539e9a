//! A whole service with a pool that scales, and KEDA's client for it.

#![allow(unreachable_pub, reason = "a module of a test")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use isotherm_ext_proc::config;
use isotherm_ext_proc::scaling::keda::external_scaler_client::ExternalScalerClient;
use isotherm_ext_proc::scaling::keda::{GetMetricsRequest, ScaledObjectRef};
use isotherm_ext_proc::server::Server;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use crate::fake::{FakeEngine, FakeResponse};

/// Longest wait of a test.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Longest call of KEDA's client.
const CALL_MAX: Duration = Duration::from_secs(30);
pub const TOKEN: &str = "open-sesame";
/// The pool's model.
pub const MODEL: &str = "m";

/// A metrics page of vLLM whose KV cache is used to a share.
pub fn page(kv_usage: f64) -> FakeResponse {
    let page = format!(
        "vllm:num_requests_waiting{{engine=\"0\"}} 0\n\
         vllm:num_requests_running{{engine=\"0\"}} 2\n\
         vllm:kv_cache_usage_perc{{engine=\"0\"}} {kv_usage}\n\
         vllm:cache_config_info{{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"1000\"}} 1\n"
    );
    FakeResponse::Page("/metrics", page)
}

/// A service that runs in this process.
#[derive(Debug)]
pub struct ScaledService {
    pub admin: SocketAddr,
    pub keda: SocketAddr,
    /// Address for siblings.
    pub links: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<anyhow::Result<()>>,
}

/// The text of a configuration file: `links` is the address for siblings, `scaling` has further options of the pool's section.
pub fn text(
    engines: &[FakeEngine],
    links: SocketAddr,
    siblings: &[SocketAddr],
    scaling: &str,
) -> String {
    let list = |addresses: Vec<String>| addresses.join(", ");
    let engines = list(
        engines
            .iter()
            .map(|engine| format!("\"{}\"", engine.addr))
            .collect(),
    );
    let siblings = list(
        siblings
            .iter()
            .map(|address| format!("\"{address}\""))
            .collect(),
    );
    format!(
        "listen: [\"127.0.0.1:0\"]\n\
         admin: {{ listen: \"127.0.0.1:0\", token_file: token }}\n\
         scaling: {{ keda_listen: \"127.0.0.1:0\", state_file: scaling.json }}\n\
         region: {{ name: us, listen: \"{links}\", siblings: [{siblings}] }}\n\
         pools:\n\
         \x20 - model: {MODEL}\n\
         \x20   replicas: {{ static: [{engines}] }}\n\
         \x20   scaling:\n\
         \x20     replicas_min: 1\n\
         \x20     replicas_max: 6\n\
         \x20     stabilisation_ms: 1000\n\
         \x20     startup_ms: 1000\n{scaling}"
    )
}

impl ScaledService {
    /// Starts a service with the file `isotherm.yaml` of a folder.
    pub async fn start(folder: &Path, text: &str) -> Self {
        let file = folder.join("isotherm.yaml");
        std::fs::write(folder.join("token"), TOKEN).unwrap();
        std::fs::write(&file, text).unwrap();
        let server = Server::bind(config::load(&file).unwrap(), Some(file))
            .await
            .unwrap();
        let (admin, keda) = (
            server.admin_address().unwrap(),
            server.keda_address().unwrap().unwrap(),
        );
        let links = server.region().unwrap().address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Self {
            admin,
            keda,
            links,
            stop: Some(stop),
            running,
        }
    }

    /// Stops the service, and waits until it has ended.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(WAIT_MAX, self.running)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    /// KEDA's client.
    pub async fn client(&self) -> ExternalScalerClient<Channel> {
        let endpoint = Channel::from_shared(format!("http://{}", self.keda)).unwrap();
        ExternalScalerClient::new(endpoint.connect().await.unwrap())
    }

    /// The value of the metric, as KEDA reads it; `None` with an error.
    pub async fn metric(&self) -> Option<i64> {
        let request = GetMetricsRequest {
            scaled_object_ref: Some(object()),
            metric_name: "isotherm-desired-replicas".to_owned(),
        };
        let response = self
            .client()
            .await
            .get_metrics(request)
            .await
            .ok()?
            .into_inner();
        let value = response.metric_values.first().unwrap();
        assert!(
            (value.metric_value_float - value.metric_value as f64).abs() < 1e-9,
            "{value:?}"
        );
        Some(value.metric_value)
    }

    /// Sends a request to the admin interface.
    pub async fn request(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let request = hyper::Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.admin))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Full::new(bytes::Bytes::from(body.to_owned())))
            .unwrap();
        let response = client.request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Replicas that drain.
    pub async fn draining(&self) -> usize {
        let (_, replicas) = self.request("GET", "/api/replicas", "").await;
        let replicas = replicas.as_array().unwrap().iter();
        replicas
            .filter(|replica| replica["draining"] == true)
            .count()
    }

    /// The pool in `GET /api/scaling`.
    pub async fn pool(&self) -> Value {
        let (_, body) = self.request("GET", "/api/scaling", "").await;
        body["pools"][0].clone()
    }

    /// Whether the service leads its siblings.
    pub async fn leads(&self) -> bool {
        let (_, body) = self.request("GET", "/api/scaling", "").await;
        body["is_leader"] == true
    }
}

/// The ScaledObject in KEDA's calls.
pub fn object() -> ScaledObjectRef {
    ScaledObjectRef {
        name: "llm".to_owned(),
        namespace: "models".to_owned(),
        scaler_metadata: HashMap::from([
            ("scalerAddress".to_owned(), "isotherm:9005".to_owned()),
            ("pool".to_owned(), MODEL.to_owned()),
        ]),
    }
}

/// Waits until every service tells KEDA a number.
pub async fn wait_for_number(services: &[&ScaledService], number: i64) {
    let ends = Instant::now() + WAIT_MAX;
    loop {
        let mut seen = Vec::new();
        for service in services {
            let metric = tokio::time::timeout(CALL_MAX, service.metric()).await;
            seen.push(metric.map_err(|_| "no answer"));
        }
        if seen.iter().all(|value| *value == Ok(Some(number))) {
            return;
        }
        if Instant::now() >= ends {
            let mut pools = Vec::new();
            for service in services {
                pools.push(service.pool().await);
            }
            panic!("wanted {number}, last read {seen:?}, pools {pools:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
