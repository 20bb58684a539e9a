//! Services of several regions in one process, each in a runtime of its own so that it can be killed: links over
//! loopback, fake engines as replicas, and a fake Envoy that follows the endpoints.

#![allow(unreachable_pub, reason = "a module of a test")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use isotherm_ext_proc::config::{self, Listen};
use isotherm_ext_proc::pool::{
    InFlightGuard, Pool, PoolDecision, PoolRegistry, RouteRequest, Submission,
};
use isotherm_ext_proc::regions::{PeerState, RegionsHandle, RegionsStatus};
use isotherm_ext_proc::server::Server;
use isotherm_router::{PeerAvailability, Scope};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use super::authority::{Authority, IssuedCertificate, paths};
use super::fake::{FakeEngine, vllm};

/// Longest wait of a test.
const WAIT_MAX: Duration = Duration::from_secs(40);

/// The pool's model.
pub const MODEL: &str = "m";

/// A service whose configuration outlives it.
pub struct Node {
    pub name: &'static str,
    folder: tempfile::TempDir,
    /// Further options of the section `region`.
    options: String,
    /// Where other services reach it.
    listen: SocketAddr,
    /// The networks that its configuration gives to each peer.
    pub networks: &'static str,
    pub engines: Vec<FakeEngine>,
    running: Option<RunningNode>,
}

/// A service that runs.
struct RunningNode {
    runtime: Runtime,
    pool_registry: Arc<PoolRegistry>,
    handle: RegionsHandle,
    links: SocketAddr,
    grpc: Listen,
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
    /// The Envoy of this region, while there is one.
    envoy: Option<oneshot::Sender<()>>,
}

impl Node {
    /// Starts a service with one replica, an Envoy, and no peers.
    pub async fn start(name: &'static str, options: &str) -> Self {
        let engine = FakeEngine::start(vllm(0)).await;
        let mut node = Self::with(name, options, vec![engine]);
        node.run().await;
        node
    }

    /// As [`Node::start`], with mutual TLS.
    pub async fn start_with_tls(
        name: &'static str,
        issued: &IssuedCertificate,
        authority: &Authority,
    ) -> Self {
        let engine = FakeEngine::start(vllm(0)).await;
        let tls = "tls: { certificate: region.pem, key: region.key, ca: ca.pem }";
        let mut node = Self::with(name, tls, vec![engine]);
        node.write_certificate(issued, authority);
        node.run().await;
        node
    }

    /// Replaces its certificate, which it follows.
    pub fn write_certificate(&self, issued: &IssuedCertificate, authority: &Authority) {
        issued.write(&paths(self.folder.path()), &authority.pem);
    }

    /// A service that does not run yet.
    pub fn with(name: &'static str, options: &str, engines: Vec<FakeEngine>) -> Self {
        Self {
            name,
            folder: tempfile::tempdir().unwrap(),
            options: options.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            networks: "127.0.0.0/8",
            engines,
            running: None,
        }
    }

    /// Gives it a fixed port for links, which the store names to other regions.
    pub fn advertise(&mut self, options: &str) {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let links = port.local_addr().unwrap();
        let options = options.strip_suffix(" }").unwrap();
        self.options = format!("{options}, advertise: \"{links}\" }}");
        self.listen = links;
    }

    /// Runs it, or runs it again after it was killed, with an Envoy.
    pub async fn run(&mut self) {
        self.run_without_envoy(&[], &[]);
        self.connect_envoy().await;
    }

    /// Runs it with these peers and siblings, and no Envoy.
    pub fn run_without_envoy(&mut self, peers: &[(&str, SocketAddr)], siblings: &[SocketAddr]) {
        let addresses: Vec<SocketAddr> = self.engines.iter().map(|engine| engine.addr).collect();
        self.write(peers, siblings, &addresses);
        let file = self.file();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        runtime.spawn(async move {
            let config = config::load(&file).unwrap();
            let server = Server::bind(config, Some(file)).await.unwrap();
            let region = server.region().unwrap();
            let links = region.address().unwrap();
            let grpc = server.addresses().unwrap().remove(0);
            ready
                .send((
                    Arc::clone(server.pool_registry()),
                    region.handle(),
                    links,
                    grpc,
                ))
                .unwrap();
            server.run(async { drop(stopped.await) }).await.unwrap();
            end.send(())
        });
        let (pool_registry, handle, links, grpc) = is_ready.recv_timeout(WAIT_MAX).unwrap();
        self.running = Some(RunningNode {
            runtime,
            pool_registry,
            handle,
            links,
            grpc,
            stop,
            ended,
            envoy: None,
        });
    }

    /// Kills the service without an orderly stop.
    pub fn kill(&mut self) {
        let running = self.running.take().unwrap();
        running.runtime.shutdown_background();
    }

    /// Stops it in good order.
    pub async fn stop(&mut self) {
        let running = self.running.take().unwrap();
        drop(running.envoy);
        running.stop.send(()).unwrap();
        let ended = tokio::time::timeout(WAIT_MAX, running.ended).await;
        ended.unwrap().unwrap();
        running.runtime.shutdown_background();
    }

    /// Connects an Envoy.
    pub async fn connect_envoy(&mut self) {
        let running = self.running.as_mut().unwrap();
        let Listen::Tcp(address) = &running.grpc else {
            panic!("not TCP")
        };
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = channel.connect().await.unwrap();
        let (requests, receiver) = mpsc::channel(1);
        requests.send(DiscoveryRequest::default()).await.unwrap();
        let mut client = EndpointDiscoveryServiceClient::new(channel);
        let (envoy, gone) = oneshot::channel();
        tokio::spawn(async move {
            let receiver = ReceiverStream::new(receiver);
            let _stream = client.stream_endpoints(receiver).await.unwrap();
            drop(gone.await);
            drop(requests);
        });
        running.envoy = Some(envoy);
    }

    /// Kills its Envoy.
    pub fn kill_envoy(&mut self) {
        self.running().envoy.as_ref().unwrap();
        self.running.as_mut().unwrap().envoy = None;
    }

    /// Where other services reach it.
    pub fn links(&self) -> SocketAddr {
        self.running().links
    }

    /// The file of its configuration.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("isotherm.yaml")
    }

    /// Rewrites its configuration, which it follows.
    pub fn write(&self, peers: &[(&str, SocketAddr)], siblings: &[SocketAddr], own: &[SocketAddr]) {
        let peers: Vec<_> = peers
            .iter()
            .map(|(name, address)| {
                format!(
                    "{{ name: {name}, address: \"{address}\", replicas: [{}] }}",
                    self.networks
                )
            })
            .collect();
        let quoted = |list: &[SocketAddr]| {
            let list: Vec<_> = list.iter().map(|item| format!("\"{item}\"")).collect();
            list.join(", ")
        };
        let text = format!(
            "listen: [\"127.0.0.1:0\"]\n\
             admin: {{ listen: \"127.0.0.1:0\" }}\n\
             drain_ms_max: 20000\n\
             pools:\n\
             - model: {MODEL}\n  push: outstanding:1\n  \
             probe: {{ interval_ms: 50, timeout_ms: 20000 }}\n  \
             replicas: {{ static: [{}] }}\n\
             region:\n  name: {}\n  listen: \"{}\"\n  {}\n  \
             peers: [{}]\n  siblings: [{}]\n",
            quoted(own),
            self.name,
            self.listen,
            self.options,
            peers.join(", "),
            quoted(siblings),
        );
        let new = self.folder.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }

    pub fn pool(&self) -> Arc<Pool> {
        self.running().pool_registry.pool_for(MODEL).unwrap()
    }

    pub fn status(&self) -> RegionsStatus {
        self.running().handle.status()
    }

    /// How it sees another region.
    pub fn sees(&self, region: &str) -> Option<PeerState> {
        let peers = self.status().peers;
        peers.into_iter().find(|peer| peer.name == region)
    }

    /// Whether its pool forwards to a region, or why not.
    pub fn availability(&self, region: &str) -> Option<PeerAvailability> {
        let peers = self.pool().peers();
        let peer = peers.into_iter().find(|peer| peer.name == region);
        peer.map(|peer| peer.availability)
    }

    /// The replicas in its pool, with whether they are leased.
    pub fn members(&self) -> Vec<(SocketAddr, bool)> {
        let members = self.pool().members();
        let members = members.borrow();
        members
            .iter()
            .map(|member| (member.addr, member.lease.is_some()))
            .collect()
    }

    /// Whether its pool has the first replica of `other`.
    pub fn holds(&self, other: &Node) -> bool {
        self.members().contains(&(other.engines[0].addr, true))
    }

    /// Hands in a request that may go anywhere.
    pub fn submit(&self, ask: RouteRequest) -> (InFlightGuard, Submission) {
        let scope = Scope::Regions {
            tried: Default::default(),
        };
        self.pool().submit(&RouteRequest { scope, ..ask })
    }

    fn running(&self) -> &RunningNode {
        self.running.as_ref().expect("it runs")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.runtime.shutdown_background();
        }
    }
}

/// Makes every node that runs a peer of every other.
pub fn connect(nodes: &[&Node]) {
    for node in nodes {
        let others = nodes.iter().filter(|other| other.name != node.name);
        let peers: Vec<_> = others.map(|other| (other.name, other.links())).collect();
        let own: Vec<_> = node.engines.iter().map(|engine| engine.addr).collect();
        node.write(&peers, &[], &own);
    }
}

/// Waits until every node would forward to every other.
pub async fn connected(nodes: &[&Node]) {
    connect(nodes);
    for node in nodes {
        for other in nodes.iter().filter(|other| other.name != node.name) {
            let what = format!("{} forwards to {}", node.name, other.name);
            wait_until(&what, || {
                node.availability(other.name) == Some(PeerAvailability::Available)
            })
            .await;
        }
    }
}

/// Where a request that was decided at once goes: the name of a region, or of this one's replica.
pub fn place(progress: &Submission) -> String {
    match progress {
        Submission::Decided(PoolDecision::Dispatch(route)) => route.chosen.to_string(),
        Submission::Decided(PoolDecision::Forward(forward)) => forward.peer.name.to_string(),
        other => format!("{other:?}"),
    }
}

/// Waits until `holds`.
pub async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < WAIT_MAX, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Looks for a while whether `holds` stays true.
pub async fn throughout(what: &str, time: Duration, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < time {
        assert!(holds(), "no longer: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
