//! A worker: it claims lines, sends them to the gateway and records their results; and it validates and ends batches.
//!
//! One task owns the state of all lines in flight. Responses are awaited in tasks of their own, and one task more writes
//! results, many in a transaction. A line keeps its place among the lines in flight until its result is stored, so a slow
//! database slows the worker instead of filling its memory.

mod counters;
mod flight;
mod in_flight;
mod plan;
mod rates;
mod recorder;
mod steward;
mod validation;
mod windows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::gateway::{Gateway, StatusPage};
use crate::id::random_id;
use crate::limits::Limits;
use crate::store::{Store, StoreResult};

use flight::Flights;
use plan::Plan;

pub use counters::{AttemptEnd, PRIORITIES, WorkerCounters};

/// Interval of the plan: which batches are active, and which lines are promoted.
const PLAN_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of claims while nothing else happens.
const CLAIM_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the worker reads what the gate holds.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Longest wait for one step of the database.
const STEP_TIME_MAX: Duration = Duration::from_secs(15);
/// Pause after a failed step of the database.
const STEP_PAUSE: Duration = Duration::from_secs(1);

/// Configuration of a worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Envoy.
    pub gateway: Gateway,
    /// Admin interface of the service, if its address is known.
    pub status: Option<StatusPage>,
    /// Bounds.
    pub limits: Limits,
    /// Lines at the gateway at once.
    pub concurrency_max: usize,
    /// Time for which a worker holds a line without a renewal.
    pub lease: Duration,
    /// Time for the lines in flight when the worker stops.
    pub drain_time_max: Duration,
    /// The only batch of the worker; `None` for every batch.
    pub only: Option<String>,
    /// Counts of the worker.
    pub counters: Arc<WorkerCounters>,
}

/// Works until `stop` is cancelled; then waits for the lines in flight, and gives back the lines that take too long.
///
/// # Errors
/// A newer program has migrated the database. Other workers send the lines in flight again when the leases end.
pub async fn run(store: Store, config: WorkerConfig, stop: CancellationToken) -> StoreResult<()> {
    let helpers = stop.child_token();
    let _ends_helpers = helpers.clone().drop_guard();
    tokio::select! {
        () = run_until(store.clone(), config, stop, helpers) => Ok(()),
        error = store.retired() => Err(error),
    }
}

async fn run_until(
    store: Store,
    config: WorkerConfig,
    stop: CancellationToken,
    helpers: CancellationToken,
) {
    let name = random_id("worker-");
    tracing::info!(worker = name, "the worker starts");
    let (updates, written) = mpsc::channel(config.concurrency_max.max(1) * 2);
    let (recorded_sender, recorded) = mpsc::channel(config.concurrency_max.max(1) * 2);
    let mut tasks = JoinSet::new();
    tasks.spawn(recorder::run(
        store.clone(),
        name.clone(),
        written,
        recorded_sender,
    ));
    let steward = steward::Steward::new(store.clone(), name.clone(), &config);
    let stewardship = tokio::spawn(steward.run(helpers.clone()));
    tokio::spawn(store.clone().follow_clock(helpers.clone()));
    tokio::spawn(store.clone().follow_health(helpers.clone()));
    let (hold_sender, holds) = watch::channel(BTreeMap::new());
    if let Some(page) = config.status.clone() {
        tokio::spawn(follow_status(page, hold_sender, helpers.clone()));
    }
    let mut worker = Worker {
        plan: Plan::new(&config, holds),
        flights: Flights::new(name, &config, updates, recorded),
        store,
        config,
    };
    worker.work(&stop).await;
    worker.drain().await;
    drop(worker);
    helpers.cancel();
    let _ = timeout(STEP_TIME_MAX, stewardship).await;
    // The recorder ends when it has written every update.
    let _ = timeout(STEP_TIME_MAX, tasks.join_next()).await;
    tasks.abort_all();
}

struct Worker {
    store: Store,
    config: WorkerConfig,
    plan: Plan,
    flights: Flights,
}

impl Worker {
    async fn work(&mut self, stop: &CancellationToken) {
        let tick = |period| {
            let mut interval = interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        let mut plans = tick(PLAN_INTERVAL);
        let mut claims = tick(CLAIM_INTERVAL);
        let mut renewals = tick((self.config.lease / 3).max(Duration::from_millis(100)));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = plans.tick() => {
                    let name = self.flights.worker();
                    let step = self.plan.refresh(&self.store, name, self.flights.in_flight());
                    database_step(&self.store, "plan", step).await;
                }
                _ = renewals.tick() => {
                    let step = self.flights.renew(&self.store);
                    database_step(&self.store, "renew leases", step).await;
                }
                _ = claims.tick() => {}
                () = self.flights.next_event(&mut self.plan, &self.store) => {}
            }
            self.claim().await;
            self.show();
        }
    }

    /// Shows metrics the numbers of this moment.
    fn show(&self) {
        let window = |priority| self.plan.window(priority);
        self.config.counters.show(self.flights.in_flight(), window);
    }

    /// Claims as many lines as may be sent now, and sends them.
    async fn claim(&mut self) {
        while let Some(wanted) = self
            .plan
            .next_claim(self.store.moment(), self.flights.in_flight())
        {
            let claim = self
                .plan
                .claim(&wanted, self.flights.worker(), self.config.lease);
            let Some(claim) = claim else { return };
            let step = timeout(STEP_TIME_MAX, self.store.claim_lines(&claim)).await;
            let now = self.store.moment().steady;
            match step {
                Ok(Ok(lines)) => {
                    self.plan.claimed(now, &wanted, lines.len());
                    for line in lines {
                        self.flights
                            .start(&self.store, &mut self.plan, &wanted, line);
                    }
                }
                Ok(Err(error)) => {
                    self.store.note(&error);
                    tracing::warn!(%error, "no lines can be claimed");
                    self.plan.pause_claims(now);
                    return;
                }
                Err(_) => {
                    tracing::warn!("no lines can be claimed: the database does not answer");
                    self.plan.pause_claims(now);
                    return;
                }
            }
        }
    }

    /// Waits for the lines in flight, and gives back the lines that take too long.
    async fn drain(&mut self) {
        let drained = timeout(self.config.drain_time_max, async {
            let mut renewals = interval((self.config.lease / 3).max(Duration::from_millis(100)));
            while !self.flights.is_empty() {
                tokio::select! {
                    () = self.flights.next_event(&mut self.plan, &self.store) => {}
                    _ = renewals.tick() => {
                        let _ = self.flights.renew(&self.store).await;
                    }
                }
            }
        });
        if drained.await.is_err() {
            tracing::info!(
                lines = self.flights.in_flight().len(),
                "lines in flight are given back"
            );
            self.flights.give_back().await;
        }
    }
}

/// Awaits a step of the database; logs a failure, and pauses.
async fn database_step(store: &Store, what: &str, step: impl Future<Output = StoreResult<()>>) {
    match timeout(STEP_TIME_MAX, step).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => {
            store.note(&error);
            tracing::warn!(%error, "the worker cannot {what}");
        }
        Err(_) => tracing::warn!("the worker cannot {what}: the database does not answer"),
    }
    sleep(STEP_PAUSE).await;
}

/// Reads the service's page, and logs when it becomes readable or unreadable.
async fn follow_status(
    page: StatusPage,
    holds: watch::Sender<BTreeMap<String, u64>>,
    stop: CancellationToken,
) {
    let mut is_readable = true;
    loop {
        match page.read().await {
            Ok(page) => {
                is_readable = true;
                holds.send_replace(page);
            }
            Err(error) => {
                if is_readable {
                    tracing::info!(
                        error,
                        "the service does not say what it holds: 429 alone paces the worker"
                    );
                }
                is_readable = false;
                holds.send_replace(BTreeMap::new());
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = sleep(STATUS_INTERVAL) => {}
        }
    }
}
