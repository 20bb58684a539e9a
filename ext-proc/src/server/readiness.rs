//! Readiness of the service, and gRPC health.
//!
//! The service is ready when it knows the replicas of the file, the addresses of the DNS names, and the result of one probe
//! of each replica (a failed probe is a result). Before that, Envoy places requests better alone. The service then stays
//! ready until it stops, whatever the replicas do: without a healthy replica it still gives the right reply, and Envoy
//! alone would send requests to replicas that are known to fail.
//!
//! gRPC health knows five names: `liveness`, which is `SERVING` while the process runs, and `readiness`, the name of the
//! ext_proc service, `inference-extension` (the name in charts of the Inference Extension), and the empty name, which all
//! report readiness.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tonic::server::NamedService;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::is_true;
use crate::frontends::ext_proc::ExtProcServer;
use crate::pool::{Pool, PoolRegistry};
use crate::tasks::vital;

/// Interval of the checks until the service is ready.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

const LIVENESS: &str = "liveness";
const READY_NAMES: [&str; 4] = ["readiness", ExtProcServer::NAME, "inference-extension", ""];

/// Reports readiness to `serving` and to the returned health service, until the service stops.
pub(super) async fn announce(
    pool_registry: Arc<PoolRegistry>,
    serving: watch::Sender<bool>,
    stopping: watch::Receiver<bool>,
) -> HealthServer<HealthService> {
    let mut reporter = HealthReporter::new();
    let service = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
    reporter
        .set_service_status(LIVENESS, ServingStatus::Serving)
        .await;
    report(&reporter, ServingStatus::NotServing).await;
    tokio::spawn(vital("readiness", async move {
        tokio::select! {
            () = ready(&pool_registry) => {
                tracing::info!("ready");
                serving.send_replace(true);
                report(&reporter, ServingStatus::Serving).await;
            }
            () = is_true(stopping.clone()) => {}
        }
        is_true(stopping).await;
        serving.send_replace(false);
        report(&reporter, ServingStatus::NotServing).await;
        // Ends the watch streams of the names: an open stream would delay the stop.
        for name in READY_NAMES.iter().chain([&LIVENESS]) {
            reporter.clear_service_status(name).await;
        }
    }));
    service
}

async fn report(reporter: &HealthReporter, status: ServingStatus) {
    for name in READY_NAMES {
        reporter.set_service_status(name, status).await;
    }
}

async fn ready(pool_registry: &PoolRegistry) {
    while !pool_registry.pools().iter().all(|pool| is_ready(pool)) {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn is_ready(pool: &Pool) -> bool {
    pool.has_synced() && pool.unprobed().is_none()
}
