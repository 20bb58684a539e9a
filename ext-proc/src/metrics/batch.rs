//! Metrics of `isotherm batch serve` and `work`. Numbers of the queue are read from the database at each scrape, and are the same
//! in every worker; the others are of the worker alone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use isotherm_batch::store::{DatabaseProblem, QueueCensus, Store};
use isotherm_batch::worker::{AttemptEnd, PRIORITIES, WorkerCounters};
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use strum::VariantArray as _;
use tokio::time::timeout;

use super::page::{Page, flag};
use super::{PREFIX, ProcessCollector};

/// Longest wait for the numbers of the queue. Without them the page has all others.
const CENSUS_TIME_MAX: Duration = Duration::from_secs(5);

/// The page of a worker.
#[derive(Debug)]
pub(crate) struct BatchMetrics {
    store: Store,
    census: Arc<Mutex<Option<QueueCensus>>>,
    registry: Registry,
}

impl BatchMetrics {
    pub(crate) fn new(store: Store, counters: Arc<WorkerCounters>) -> Self {
        let census = Arc::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector));
        let prefixed = registry.sub_registry_with_prefix(PREFIX);
        prefixed.register_collector(Box::new(BatchCollector {
            store: store.clone(),
            counters,
            census: Arc::clone(&census),
        }));
        Self {
            store,
            census,
            registry,
        }
    }

    /// Encodes the page of a scrape.
    pub(crate) async fn page(&self) -> Result<String, fmt::Error> {
        let census = timeout(CENSUS_TIME_MAX, self.store.census()).await;
        *self.census.lock() = match census {
            Ok(Ok(census)) => Some(census),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the queue cannot be counted");
                None
            }
            Err(_) => None,
        };
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}

#[derive(Debug)]
struct BatchCollector {
    store: Store,
    counters: Arc<WorkerCounters>,
    census: Arc<Mutex<Option<QueueCensus>>>,
}

impl Collector for BatchCollector {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page::new(encoder);
        let census = self.census.lock().clone();
        encode_queue(&mut page, census.as_ref())?;
        let database = (self.store.failures(), self.store.problem());
        encode_worker(&mut page, &self.counters, database)
    }
}

/// Encodes the numbers of the queue; none of them while the database does not answer.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
fn encode_queue(page: &mut Page<'_>, census: Option<&QueueCensus>) -> fmt::Result {
    let states = census.into_iter().flat_map(|census| {
        let states = [
            ("validating", census.validating),
            ("waiting", census.waiting),
            ("ending", census.ending),
            ("succeeded", census.succeeded),
            ("failed", census.failed),
        ];
        states.map(|(state, requests)| ([("state", state)], requests as f64))
    });
    page.gauges(
        "batch_requests",
        "Batch requests in the database, by state: validating, waiting (sent ones included), ending (their batch expires or is \
         cancelled), succeeded, failed. Those of a finished batch count until it is removed",
        states,
    )?;
    let gauge = |read: fn(&QueueCensus) -> f64| census.map(|census| ([("", ""); 0], read(census)));
    page.gauges(
        "batch_oldest_waiting_seconds",
        "Age of the oldest batch that has a request without a result; 0 without one",
        gauge(|census| census.oldest_waiting_s),
    )?;
    page.gauges(
        "batch_required_requests_per_second",
        "Rate of results at which the batches end in time of which more than half of the window has passed",
        gauge(|census| census.required_per_s),
    )
}

#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
fn encode_worker(
    page: &mut Page<'_>,
    counters: &WorkerCounters,
    (failures, problem): (u64, Option<DatabaseProblem>),
) -> fmt::Result {
    let by_priority = |read: fn(&WorkerCounters, _) -> u64| {
        PRIORITIES.map(|priority| ([("tier", priority.tier())], read(counters, priority)))
    };
    page.counters(
        "batch_sent",
        "Batch requests that the worker sent, by tier: non-interactive, interactive-normal (promoted)",
        by_priority(WorkerCounters::sent),
    )?;
    page.counters(
        "batch_finished",
        "Attempts of batch requests that ended, by result: success, error, refused (429, another attempt follows), failed \
         (another attempt follows)",
        AttemptEnd::VARIANTS.iter().map(|end| {
            let result: &'static str = end.into();
            ([("result", result)], counters.ended(*end))
        }),
    )?;
    page.total(
        "batch_taken_over",
        "Batch requests that the worker took over when the lease of another worker had ended",
        counters.taken_over(),
    )?;
    let gauges = |read| by_priority(read).map(|(labels, number)| (labels, number as f64));
    page.gauges(
        "batch_in_flight",
        "Batch requests of the worker at the gateway, and those whose result is being stored",
        gauges(WorkerCounters::in_flight),
    )?;
    page.gauges(
        "batch_window",
        "Batch requests that the gateway takes at once from the worker, as it has learned so far, over all models with work",
        gauges(WorkerCounters::window),
    )?;
    page.total(
        "batch_database_failures",
        "Statements and checks of the batch database that failed",
        failures,
    )?;
    let problems = DatabaseProblem::VARIANTS.iter().map(|other| {
        let name: &'static str = other.into();
        ([("problem", name)], flag(problem == Some(*other)))
    });
    page.gauges(
        "batch_database_problem",
        "1 for the reason for which the queue does not work: file_gone, damaged, no_answer, no_writes",
        problems,
    )
}
