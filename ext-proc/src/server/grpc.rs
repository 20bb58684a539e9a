//! The gRPC server: its services, and HTTP/2 settings for thousands of queued requests.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_server::EndpointDiscoveryServiceServer;
use futures_util::Stream;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::envoys::{CallerKind, EnvoyConnections, EnvoyDetector, TrackedConnection};
use super::listen::Connection;
use crate::config::Config;
use crate::eds::EdsService;
use crate::frontends::decision_stream::{DecisionMethod, DecisionServer};
use crate::frontends::ext_proc::{ExtProcServer, ProcessMethod, Settings};
use crate::frontends::request::RequestContext;
use crate::metrics::Metrics;
use crate::pool::PoolRegistry;
use crate::spans::Spans;
use crate::streaming_server::StreamingServer;

/// Limit of open streams of one connection. A stream lives as long as its request, so this limits queued requests and
/// requests in flight together; Envoy opens one connection for each worker. A queue soon reaches HTTP/2's usual 100 to
/// 200, and Envoy then times out on requests that have not reached the service.
const STREAMS_MAX: u32 = 100_000;

/// Limit of open streams of one connection for health checks.
const HEALTH_STREAMS_MAX: u32 = 16;
/// Flow-control window of a stream, in bytes: HTTP/2's own default instead of the server's 1 MiB.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// Flow-control window of a connection, in bytes. A queued request reads nothing, so this must hold many stream windows.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Interval of keepalive pings on a silent connection. The requests of an Envoy that vanished are released after this
/// interval and [`KEEPALIVE_TIMEOUT`].
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time until the reply to a keepalive ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Services {
    pub(super) ext_proc: ExtProcServer,
    pub(super) decisions: DecisionServer,
    pub(super) endpoints: EndpointDiscoveryServiceServer<EdsService>,
    pub(super) health: HealthServer<HealthService>,
    /// Counts the connections of Envoys.
    pub(super) envoys: EnvoyConnections,
    /// Exporter of spans, if one is configured.
    pub(super) spans: Option<Spans>,
}

impl Services {
    /// Starts the services. Their streams end when `stopped` turns true.
    /// Fails when spans cannot be exported.
    pub(super) fn start(
        config: &Config,
        pool_registry: &Arc<PoolRegistry>,
        metrics: Arc<Metrics>,
        stopped: &watch::Receiver<bool>,
        health: HealthServer<HealthService>,
        envoys: EnvoyConnections,
    ) -> anyhow::Result<Self> {
        let spans = config.tracing.as_ref().map(Spans::start).transpose()?;
        let context = Arc::new(RequestContext {
            pool_registry: Arc::clone(pool_registry),
            metrics: Arc::clone(&metrics),
            spans: spans.clone(),
            started_unix_s: unix_time_s(),
        });
        Ok(Self {
            ext_proc: StreamingServer(ProcessMethod {
                context: Arc::clone(&context),
                settings: Arc::new(Settings::new(
                    config.ext_proc.clone(),
                    config.allowed_paths.clone(),
                )),
            }),
            decisions: StreamingServer(DecisionMethod {
                context,
                stopping: stopped.clone(),
            }),
            endpoints: EdsService::server(Arc::clone(pool_registry), metrics, stopped.clone()),
            health,
            envoys,
            spans,
        })
    }
}

/// Serves connections until `stop` resolves and every stream has ended.
pub(super) async fn serve(
    services: Services,
    connections: impl Stream<Item = io::Result<TrackedConnection<Box<dyn Connection>>>>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    // A client that disconnects resets its stream, and thousands may disconnect at once. The small defaults of these two
    // limits guard against an attack, and are replaced by the limit of streams.
    let resets_max = usize::try_from(STREAMS_MAX).ok();
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_pending_accept_reset_streams(resets_max)
        .http2_max_local_error_reset_streams(resets_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(EnvoyDetector::new(services.ext_proc, CallerKind::Envoy))
        .add_service(EnvoyDetector::new(services.decisions, CallerKind::Envoy))
        .add_service(EnvoyDetector::new(services.endpoints, CallerKind::Envoy))
        .add_service(EnvoyDetector::new(services.health, CallerKind::Any))
        .serve_with_incoming_shutdown(connections, stop)
        .await?;
    Ok(())
}

/// Serves health checks alone until `stop` resolves.
pub(super) async fn serve_health(
    health: HealthServer<HealthService>,
    socket: TcpListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    Server::builder()
        .max_concurrent_streams(HEALTH_STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(health)
        .serve_with_incoming_shutdown(TcpListenerStream::new(socket), stop)
        .await?;
    Ok(())
}

fn unix_time_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
