//! Readiness that means it, and gRPC health.
//!
//! The service is ready once it knows what it decides on: the replicas of the file are in, those behind a name as well,
//! and each has been asked once (one that failed its probe is known well enough). Before that Envoy places requests
//! better without it. From then on it stays ready until it stops, whatever becomes of the replicas: a service without a
//! healthy replica still gives the right answer, and taking it away would only make Envoy send requests to replicas that
//! are known to fail.
//!
//! gRPC health knows four names: `liveness`, which is `SERVING` while the process runs, and `readiness`, the ext_proc
//! service's own and the empty one, which are all the same.

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

/// How often the pool_registry is looked at until it is known.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const LIVENESS: &str = "liveness";
const READY_NAMES: [&str; 3] = ["readiness", ExtProcServer::NAME, ""];

/// Tells `serving`, and the health service that is returned, whether the service is ready, until it stops.
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
    tokio::spawn(async move {
        tokio::select! {
            () = known(&pool_registry) => {
                tracing::info!("ready");
                serving.send_replace(true);
                report(&reporter, ServingStatus::Serving).await;
            }
            () = is_true(stopping.clone()) => {}
        }
        is_true(stopping).await;
        serving.send_replace(false);
        report(&reporter, ServingStatus::NotServing).await;
        // Whoever follows a name hears of this and no more: a stream that stayed open would hold up the stop.
        for name in READY_NAMES.iter().chain([&LIVENESS]) {
            reporter.clear_service_status(name).await;
        }
    });
    service
}

async fn report(reporter: &HealthReporter, status: ServingStatus) {
    for name in READY_NAMES {
        reporter.set_service_status(name, status).await;
    }
}

async fn known(pool_registry: &PoolRegistry) {
    while !pool_registry.pools().iter().all(|pool| is_known(pool)) {
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn is_known(pool: &Pool) -> bool {
    pool.has_synced() && pool.unprobed().is_none()
}
