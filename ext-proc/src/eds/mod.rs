//! Endpoint discovery: tells Envoy the replicas of each cluster, which come and go at run time.
//!
//! Envoy's `override_host` load balancer sends only to hosts of its cluster, so Envoy must know a new replica before requests
//! for it arrive. The service pushes endpoints and decisions at once. A request that overtakes the endpoints falls to the
//! cluster's fallback policy, and fails nowhere.
//!
//! The service speaks both of Envoy's protocols: state of the world (`GRPC`) and incremental (`DELTA_GRPC`). In both, a
//! cluster without a pool gets no endpoints. Without a reply, Envoy would delay its start, and then show a timeout in place
//! of the mistake.
//!
//! There is no shared snapshot. Whenever the registry's revision changes, each stream compares what it has sent with the
//! pool table. A service has few Envoys, and membership changes seldom.

mod assignment;
mod delta;
mod sotw;
mod stream;

use std::sync::Arc;

use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_server::{
    EndpointDiscoveryService, EndpointDiscoveryServiceServer,
};
use futures_util::stream::BoxStream;
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::Metrics;
use crate::pool::PoolRegistry;
use delta::DeltaState;
use sotw::SotwState;
use stream::follow;

/// The endpoint discovery service.
#[derive(Clone, Debug)]
pub struct EdsService {
    context: Arc<EdsContext>,
}

/// State that all streams share.
#[derive(Debug)]
struct EdsContext {
    pool_registry: Arc<PoolRegistry>,
    metrics: Arc<Metrics>,
    /// Turns true when the service stops. The streams then end, so that connections can close.
    stopping: watch::Receiver<bool>,
}

impl EdsService {
    /// Creates the gRPC service. Its streams end when `stopping` turns true.
    pub fn server(
        pool_registry: Arc<PoolRegistry>,
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
    ) -> EndpointDiscoveryServiceServer<Self> {
        EndpointDiscoveryServiceServer::new(Self {
            context: Arc::new(EdsContext {
                pool_registry,
                metrics,
                stopping,
            }),
        })
    }
}

#[tonic::async_trait]
impl EndpointDiscoveryService for EdsService {
    type StreamEndpointsStream = BoxStream<'static, Result<DiscoveryResponse, Status>>;
    type DeltaEndpointsStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_endpoints(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamEndpointsStream>, Status> {
        let replies = follow::<_, SotwState>(Arc::clone(&self.context), request.into_inner());
        Ok(Response::new(Box::pin(replies)))
    }

    async fn delta_endpoints(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaEndpointsStream>, Status> {
        let replies = follow::<_, DeltaState>(Arc::clone(&self.context), request.into_inner());
        Ok(Response::new(Box::pin(replies)))
    }

    async fn fetch_endpoints(
        &self,
        _: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        // Envoy fetches by REST only.
        Err(Status::unimplemented("subscribe with a stream"))
    }
}
