//! Numbers of replicas: measures what the [`Planner`] needs, and publishes what it plans.
//!
//! One task ([`driver`]) hands the planner the demand of each minute and the state of the replicas every few seconds, and carries
//! out its plan: it publishes the numbers, drains and resumes replicas, and calls webhooks. Services of one region add up their
//! demand; the one that started first leads, and the others publish its numbers ([`exchange`]). The numbers leave as metrics, by
//! the admin interface, by a webhook, and by KEDA's contract ([`keda`]).

mod driver;
mod exchange;
pub mod keda;
mod samples;
mod state_file;
mod status;
mod webhook;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isotherm_planner::{Hold, Planner};
use isotherm_router::Time;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::pool::PoolRegistry;
use crate::regions::RegionsHandle;
use crate::tasks::vital;
use driver::ScalingTask;

pub(crate) use status::{PoolScalingStatus, ScalingStatus};

/// The planner and its published state. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct ScalingHandle {
    planner: Arc<Mutex<Planner>>,
    status: watch::Sender<Arc<ScalingStatus>>,
}

impl ScalingHandle {
    /// Starts the task that plans until the service stops.
    pub(crate) fn start(
        &self,
        pool_registry: &Arc<PoolRegistry>,
        regions: &Option<RegionsHandle>,
        config: watch::Receiver<Arc<Config>>,
        stopped: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let task = ScalingTask::new(self, pool_registry, regions.as_ref(), config);
        tokio::spawn(vital("plans", task.run(stopped)))
    }

    /// The state after the last plan.
    pub(crate) fn status(&self) -> Arc<ScalingStatus> {
        Arc::clone(&self.status.borrow())
    }

    /// Follows the state.
    pub(crate) fn follow(&self) -> watch::Receiver<Arc<ScalingStatus>> {
        self.status.subscribe()
    }

    /// Holds the number of a pool for a while; `None` ends the hold. Returns whether the pool has a number.
    pub(crate) fn hold(&self, pool: &str, hold: Option<(u32, Duration)>) -> bool {
        let hold = hold.map(|(replicas, time)| Hold {
            replicas,
            until: unix_now().after(time),
        });
        self.planner.lock().hold(pool, hold)
    }
}

/// Time since the Unix epoch: the planner's season and its saved state refer to it.
fn unix_now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.unwrap_or_default().as_nanos();
    Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}
