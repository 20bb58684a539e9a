//! A service without its gRPC server: real pools, and the admin interface on a free port.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use isotherm_ext_proc::admin::Admin;
use isotherm_ext_proc::clock::Clock;
use isotherm_ext_proc::config::{self, Config, Reloader};
use isotherm_ext_proc::metrics::{
    Metrics, PoolCollector, ProbeMetrics, RegionCollector, ReloadMetrics,
};
use isotherm_ext_proc::pool::{PoolRegistry, follow_sources};
use isotherm_ext_proc::probe;
use isotherm_ext_proc::regions::{RegionsRuntime, RegionsServer};
use isotherm_ext_proc::scaling::ScalingHandle;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The admin token of services in tests.
pub const TOKEN: &str = "open-sesame";

/// A running service without its gRPC server.
#[derive(Debug)]
pub struct Service {
    /// The pools.
    pub pool_registry: Arc<PoolRegistry>,
    /// The address of the admin interface.
    pub admin: SocketAddr,
    /// Whether the service reports that it is ready.
    pub serving: watch::Sender<bool>,
    /// The configuration file.
    pub file: PathBuf,
    _folder: tempfile::TempDir,
    _reloads: JoinSet<()>,
    _region: Option<RegionsRuntime>,
}

impl Service {
    /// Starts a service with a configuration; `TOKEN_FILE` in it becomes the path of a file with [`TOKEN`].
    pub async fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let file = folder.path().join("isotherm.yaml");
        std::fs::write(&file, text).unwrap();
        let config = config::load(&file).unwrap();
        Self::run(folder, config, file).await
    }

    async fn run(folder: tempfile::TempDir, config: Config, file: PathBuf) -> Self {
        let mut registry = Registry::with_prefix("isotherm");
        let metrics = Arc::new(Metrics::register(&mut registry));
        let probes = ProbeMetrics::register(&mut registry);
        let reloads = ReloadMetrics::register(&mut registry);
        let pool_registry = Arc::new(PoolRegistry::new(&config, metrics, Clock::start()));
        registry.register_collector(Box::new(PoolCollector(Arc::clone(&pool_registry))));
        let region = match &config.region {
            Some(region) => Some(
                RegionsServer::bind(region, config.drain_max, &pool_registry)
                    .await
                    .unwrap(),
            ),
            None => None,
        };
        let regions = region.as_ref().map(RegionsServer::handle);
        registry.register_collector(Box::new(RegionCollector(regions.clone())));
        drop(probe::spawn(&pool_registry, probes).unwrap());
        let token_file = config.admin.token_file.clone();
        // The listener itself stays on loopback.
        let is_beyond_loopback = !config.admin.listen.ip().is_loopback();
        drop(follow_sources(&pool_registry));
        let registry_to_apply = Arc::clone(&pool_registry);
        let apply = move |config: &Config| registry_to_apply.apply(config);
        let reloader = Reloader::new(config, Some(file.clone()), apply, move |is_applied| {
            reloads.record(is_applied);
        });
        let (serving, is_serving) = watch::channel(true);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let admin = listener.local_addr().unwrap();
        let interface = Admin {
            pool_registry: Arc::clone(&pool_registry),
            registry: Arc::new(registry),
            regions,
            scaling: ScalingHandle::default(),
            reloader: Arc::clone(&reloader),
            token_file,
            is_beyond_loopback,
            serving: is_serving,
        };
        tokio::spawn(interface.serve(listener, std::future::pending()));
        // One Envoy stays connected.
        let (_, envoys) = watch::channel(1);
        let config = reloader.config();
        let region = region.map(|region| region.start(config, envoys));
        Self {
            pool_registry,
            admin,
            serving,
            file,
            _folder: folder,
            _reloads: reloader.follow(),
            _region: region,
        }
    }

    /// Rewrites the configuration file.
    pub fn write(&self, text: &str) {
        std::fs::write(&self.file, text).unwrap();
    }

    /// The folder of the configuration file.
    pub fn folder(&self) -> &Path {
        self.file.parent().unwrap()
    }

    /// The addresses of the only pool's replicas.
    pub fn replica_addresses(&self) -> Vec<String> {
        let pools = self.pool_registry.pools();
        let members = pools[0].members();
        let members = members.borrow();
        members
            .iter()
            .map(|member| member.addr.to_string())
            .collect()
    }

    /// Sends a request to the admin interface; the body is null where the response has none.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, Value) {
        let (status, text) = self.request_text(method, path, token, body).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a request to the admin interface; the body is text.
    pub async fn request_text(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, String) {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.admin))
            .header("content-type", "application/json");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(bytes::Bytes::from(body.to_owned())))
            .unwrap();
        let response = tokio::time::timeout(Duration::from_secs(10), client.request(request));
        let response = response.await.unwrap().unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned())
    }
}
