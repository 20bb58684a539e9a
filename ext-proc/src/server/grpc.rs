//! The gRPC server: which services, and HTTP/2 set for thousands of streams that wait.

use std::future::Future;
use std::io;
use std::time::Duration;

use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_server::EndpointDiscoveryServiceServer;
use futures_util::Stream;
use tonic::transport::server::{Router, Server};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::envoys::{Callers, Envoys, Marking, Watched};
use super::listen::Connection;
use crate::eds::Endpoints;
use crate::frontends::decision_stream::DecisionServer;
use crate::frontends::ext_proc::ExtProcServer;

/// The most streams that one connection may have open. A stream lives as long as its request, so this bounds waiting
/// and running requests together; Envoy opens one connection per worker thread. HTTP/2's usual 100 to 200 would be
/// reached by a queue of any size, and then Envoy would time out on requests that nobody has seen.
const STREAMS_MAX: u32 = 100_000;

/// How far a stream may send ahead of what is read, in bytes: HTTP/2's own default, where the server's is 1 MiB.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// How far all streams of a connection together may. What waits reads nothing, so this must be more than a few windows.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// How often a silent connection is asked whether it is alive, and how long it may take to say so: the places of an
/// Envoy that vanished come free after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that is served.
#[derive(Clone)]
pub(super) struct Services {
    pub(super) ext_proc: ExtProcServer,
    pub(super) decisions: DecisionServer,
    pub(super) endpoints: EndpointDiscoveryServiceServer<Endpoints>,
    pub(super) health: HealthServer<HealthService>,
    /// Learns which connections are Envoys'.
    pub(super) envoys: Envoys,
}

/// Serves connections until `stop` resolves and every stream has ended.
pub(super) async fn serve(
    services: Services,
    connections: impl Stream<Item = io::Result<Watched<Box<dyn Connection>>>>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let router = router(services);
    router
        .serve_with_incoming_shutdown(connections, stop)
        .await?;
    Ok(())
}

fn router(services: Services) -> Router {
    // A client that aborts resets its stream, and a thousand may abort at once: that is not the attack against which
    // the small defaults of these two limits guard. The bound on streams is the bound on them, too.
    let resets_max = usize::try_from(STREAMS_MAX).ok();
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_max_pending_accept_reset_streams(resets_max)
        .http2_max_local_error_reset_streams(resets_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(Marking::new(services.ext_proc, Callers::Envoys))
        .add_service(Marking::new(services.decisions, Callers::Envoys))
        .add_service(Marking::new(services.endpoints, Callers::Envoys))
        .add_service(Marking::new(services.health, Callers::Anybody))
}
