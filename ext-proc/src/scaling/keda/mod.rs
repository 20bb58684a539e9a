//! KEDA's contract for external scalers: an autoscaler in Kubernetes reads the number of replicas.
//!
//! The metric of a pool is its number, and the target is one, so the HorizontalPodAutoscaler wants as many replicas as the service
//! plans. Pools in another mode than `act`, and pools that do not know their replicas yet, get an error: KEDA then keeps the
//! replicas that there are, or uses the `fallback` of the ScaledObject.

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::allow_attributes_without_reason, reason = "generated from the .proto file")]
mod generated;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

pub use generated::*;

use super::{PoolScalingStatus, ScalingHandle, ScalingStatus};
use crate::config::ScalingMode;
use external_scaler_server::{ExternalScaler, ExternalScalerServer};

/// Name of the metric.
pub const METRIC: &str = "isotherm-desired-replicas";
/// Key of the trigger's metadata that names the pool.
pub const POOL_KEY: &str = "pool";

/// Limit of open streams of one connection: KEDA keeps one for each ScaledObject with a push trigger.
const STREAMS_MAX: u32 = 1_024;
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The external scaler.
#[derive(Clone, Debug)]
pub(crate) struct KedaScaler {
    scaling: ScalingHandle,
    /// Whether the service stops: streams end then, so that they do not hold it up.
    stopped: watch::Receiver<bool>,
}

/// Serves KEDA until the service stops.
/// Fails when the listener fails.
pub(crate) async fn serve(
    scaling: ScalingHandle,
    listener: TcpListener,
    stopped: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    let mut stopping = stopped.clone();
    let stop = async move {
        drop(stopping.wait_for(|stopped| *stopped).await);
    };
    let scaler = KedaScaler { scaling, stopped };
    Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(ExternalScalerServer::new(scaler))
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop)
        .await?;
    Ok(())
}

/// The pool that a ScaledObject names; the only pool, if it names none.
fn pool_of<'a>(
    status: &'a ScalingStatus,
    object: &ScaledObjectRef,
) -> Result<&'a PoolScalingStatus, Status> {
    let known = || Vec::from_iter(status.pools.keys().map(|name| format!("`{name}`"))).join(", ");
    if status.pools.is_empty() {
        return Err(Status::unavailable(
            "the service has no number of replicas yet",
        ));
    }
    let (name, pool) = match object.scaler_metadata.get(POOL_KEY) {
        Some(name) => {
            let pool = status.pools.get(name);
            let unknown = || {
                Status::not_found(format!(
                    "no pool `{name}` has a section `scaling`; there are {}",
                    known()
                ))
            };
            (name, pool.ok_or_else(unknown)?)
        }
        None => match status
            .pools
            .iter()
            .next()
            .filter(|_| status.pools.len() == 1)
        {
            Some(only) => only,
            None => {
                let message = format!(
                    "name the pool in the trigger's metadata (`{POOL_KEY}`): there are {}",
                    known()
                );
                return Err(Status::invalid_argument(message));
            }
        },
    };
    if pool.mode != ScalingMode::Act {
        let message =
            format!("pool `{name}` only advises; write `mode: act` in its section `scaling`");
        return Err(Status::failed_precondition(message));
    }
    Ok(pool)
}

fn desired(status: &ScalingStatus, object: &ScaledObjectRef) -> Result<u32, Status> {
    let unknown = || Status::unavailable("the pool does not know its replicas yet");
    pool_of(status, object)?.desired().ok_or_else(unknown)
}

/// Whether the pool needs a replica: the number says so, or a request waits.
fn is_active(status: &ScalingStatus, object: &ScaledObjectRef) -> Result<bool, Status> {
    let pool = pool_of(status, object)?;
    Ok(pool.waiting > 0 || desired(status, object)? > 0)
}

#[tonic::async_trait]
impl ExternalScaler for KedaScaler {
    type StreamIsActiveStream =
        Pin<Box<dyn Stream<Item = Result<IsActiveResponse, Status>> + Send>>;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let result = is_active(&self.scaling.status(), request.get_ref())?;
        Ok(Response::new(IsActiveResponse { result }))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let object = Arc::new(request.into_inner());
        let following = (self.scaling.follow(), self.stopped.clone(), None);
        let stream =
            futures_util::stream::unfold(following, move |(mut status, mut stopped, mut last)| {
                let object = Arc::clone(&object);
                async move {
                    loop {
                        // An error is a passing one: the stream stays open, and says nothing until there is something to say.
                        let current =
                            is_active(&Arc::clone(&status.borrow_and_update()), &object).ok();
                        if let Some(result) = current.filter(|current| last != Some(*current)) {
                            last = Some(result);
                            return Some((
                                Ok(IsActiveResponse { result }),
                                (status, stopped, last),
                            ));
                        }
                        tokio::select! {
                            changed = status.changed() => changed.ok()?,
                            _ = stopped.wait_for(|stopped| *stopped) => return None,
                        }
                    }
                }
            });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        pool_of(&self.scaling.status(), request.get_ref())?;
        let spec = MetricSpec {
            metric_name: METRIC.to_owned(),
            target_size: 1,
            target_size_float: 1.0,
        };
        Ok(Response::new(GetMetricSpecResponse {
            metric_specs: vec![spec],
        }))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let object = request.into_inner().scaled_object_ref.unwrap_or_default();
        let desired = desired(&self.scaling.status(), &object)?;
        let value = MetricValue {
            metric_name: METRIC.to_owned(),
            metric_value: i64::from(desired),
            metric_value_float: f64::from(desired),
        };
        Ok(Response::new(GetMetricsResponse {
            metric_values: vec![value],
        }))
    }
}
