//! Tells Envoy which replicas there are (EDS), so that they can come and go at run time.
//!
//! Envoy's `override_host` load balancer sends only to hosts that its cluster has, so a replica that is added here
//! must reach Envoy before requests for it do. Both are pushed at once; a request that is faster than the endpoints
//! falls to the cluster's fallback policy, and fails nowhere.
//!
//! Both protocols of Envoy's are spoken: state of the world (`GRPC`) and incremental (`DELTA_GRPC`). In both, a
//! cluster that no pool stands behind is answered with no endpoints: left without an answer, Envoy would hold back
//! its start, and then show a timeout in the place of a mistake.
//!
//! There is no shared snapshot to be kept up to date: each stream compares what it has sent with the pool tables
//! whenever the registry's revision moves. A service has few Envoys, and membership changes seldom.

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
use delta::DeltaSession;
use sotw::SotwSession;
use stream::follow;

/// The endpoint discovery service over a pool_registry.
#[derive(Clone, Debug)]
pub struct Endpoints {
    context: Arc<Context>,
}

/// What every stream uses.
#[derive(Debug)]
struct Context {
    pool_registry: Arc<PoolRegistry>,
    metrics: Arc<Metrics>,
    /// Turns true when the service stops: the streams end, so that connections can.
    stopping: watch::Receiver<bool>,
}

impl Endpoints {
    /// The gRPC service. Its streams end when `stopping` turns true.
    #[must_use]
    pub fn server(
        pool_registry: Arc<PoolRegistry>,
        metrics: Arc<Metrics>,
        stopping: watch::Receiver<bool>,
    ) -> EndpointDiscoveryServiceServer<Self> {
        EndpointDiscoveryServiceServer::new(Self {
            context: Arc::new(Context {
                pool_registry,
                metrics,
                stopping,
            }),
        })
    }
}

#[tonic::async_trait]
impl EndpointDiscoveryService for Endpoints {
    type StreamEndpointsStream = BoxStream<'static, Result<DiscoveryResponse, Status>>;
    type DeltaEndpointsStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_endpoints(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamEndpointsStream>, Status> {
        let session = SotwSession::default();
        let answers = follow(Arc::clone(&self.context), request.into_inner(), session);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn delta_endpoints(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaEndpointsStream>, Status> {
        let session = DeltaSession::default();
        let answers = follow(Arc::clone(&self.context), request.into_inner(), session);
        Ok(Response::new(Box::pin(answers)))
    }

    async fn fetch_endpoints(
        &self,
        request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        let table = self.context.pool_registry.table();
        SotwSession::fetch(&request.into_inner(), &table).map(Response::new)
    }
}
