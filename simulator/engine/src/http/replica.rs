//! A replica: an engine behind a lock, its virtual time, and the requests that wait for it.
//!
//! A watch channel holds the [`GenerationProgress`] of a request. A late reader gets the latest state and turns all missed
//! tokens into one chunk, so a slow client or a fast clock costs no memory and no backlog.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use opentelemetry_sdk::trace::SdkTracer;
use tokio::sync::{Notify, watch};

use super::adapter_series::AdapterSeries;
use super::dialect::CachedTokens;
use super::fault::Faults;
use super::history::History;
use super::received_ids::ReceivedIds;
use super::stored::StoredResponses;
use super::wall_clock::unix_ms;
use crate::model::{Config, Engine, Event, EventKind, Rejection, Request, RequestId, Stats, Usage};

/// Engine whose metric names the server publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MetricsDialect {
    /// `vllm:*`
    Vllm,
    /// `sglang:*`
    Sglang,
}

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the served model.
    pub model: String,
    /// Names of adapters of the model, each with a cache of its own.
    pub adapters: Vec<String>,
    /// Size and speed.
    pub config: Config,
    /// Virtual seconds per real second.
    pub speed: f64,
    /// Tokens in one streamed chunk.
    pub stream_interval_tokens: u32,
    /// Metric names.
    pub metrics: MetricsDialect,
    /// When the usage of answers tells the hits of the prefix cache.
    pub cached_tokens: CachedTokens,
    /// Seed of injected errors.
    pub seed: u64,
}

/// Tokens of a request so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GenerationProgress {
    /// Tokens generated.
    pub generated: u32,
    /// The usage of a finished request, or the reason for which the engine rejected it; `None` before the end.
    pub end: Option<Result<Usage, Rejection>>,
}

/// An engine and its callers.
#[derive(Debug)]
pub struct Replica {
    /// Settings of the server.
    pub settings: Settings,
    /// Injected faults.
    pub faults: Faults,
    /// The tracer of the spans of requests, if they are exported.
    pub tracer: OnceLock<SdkTracer>,
    /// Series of adapters on the metrics page.
    pub adapter_series: AdapterSeries,
    /// Requests by the id of their client.
    pub received_ids: ReceivedIds,
    /// Stored responses.
    pub stored: StoredResponses,
    /// Wakes the driver when the next time to act may have come nearer.
    pub(super) wake: Notify,
    /// Start of the virtual time.
    started: Instant,
    /// Start of the replica, in milliseconds since 1970.
    pub started_unix_ms: u64,
    names: AtomicU64,
    core: Mutex<Core>,
}

/// State that the lock guards.
#[derive(Debug)]
pub struct Core {
    /// The model.
    pub engine: Engine,
    /// Changes of the load.
    pub history: History,
    waiters: HashMap<RequestId, watch::Sender<GenerationProgress>>,
    ids: u64,
}

/// A request's place in the engine; dropping it aborts the request.
#[derive(Debug)]
pub struct InFlightGuard {
    replica: Arc<Replica>,
    id: RequestId,
    progress: watch::Receiver<GenerationProgress>,
}

impl Replica {
    /// An idle engine, whose clock starts now.
    pub fn new(settings: Settings) -> Arc<Self> {
        let core = Core {
            engine: Engine::new(settings.config),
            history: History::default(),
            waiters: HashMap::new(),
            ids: 0,
        };
        Arc::new(Self {
            faults: Faults::new(settings.seed),
            tracer: OnceLock::new(),
            adapter_series: AdapterSeries::default(),
            received_ids: ReceivedIds::default(),
            stored: StoredResponses::default(),
            started: Instant::now(),
            started_unix_ms: unix_ms(),
            settings,
            wake: Notify::new(),
            names: AtomicU64::new(0),
            core: Mutex::new(core),
        })
    }

    /// Puts a request into the engine.
    pub fn submit(self: &Arc<Self>, request: impl FnOnce(RequestId) -> Request) -> InFlightGuard {
        let (sender, progress) = watch::channel(GenerationProgress::default());
        let id = self.update(|core, now| {
            core.ids += 1;
            let id = RequestId(core.ids);
            core.waiters.insert(id, sender);
            core.engine.submit(now, request(id));
            id
        });
        self.wake.notify_one();
        InFlightGuard {
            replica: Arc::clone(self),
            id,
            progress,
        }
    }

    /// A new number for a request.
    pub fn next_name(&self) -> u64 {
        self.names.fetch_add(1, Ordering::Relaxed)
    }

    /// Advances the engine to now, and returns the real time until its next event.
    pub fn advance(&self) -> Option<Duration> {
        self.update(|core, now| {
            core.engine.handle_timeout(now);
            let next = core.engine.poll_timeout()?;
            Some(next.saturating_sub(now).div_f64(self.settings.speed))
        })
    }

    /// The engine's state now.
    pub fn with_core<T>(&self, read: impl FnOnce(&Core) -> T) -> T {
        self.update(|core, now| core.engine.handle_timeout(now));
        read(&self.lock())
    }

    /// The engine's gauges and counters now.
    pub fn stats(&self) -> Stats {
        self.with_core(|core| core.engine.stats())
    }

    /// Makes every step take `factor` times as long.
    pub fn slow_down(&self, factor: f64) {
        let timing = self.settings.config.timing.slowed(factor);
        self.update(|core, now| core.engine.set_timing(now, timing));
        self.wake.notify_one();
    }

    /// Changes the engine at the current virtual time, and dispatches its events.
    fn update<T>(&self, change: impl FnOnce(&mut Core, Duration) -> T) -> T {
        let mut core = self.lock();
        let now = self.started.elapsed().mul_f64(self.settings.speed);
        let result = change(&mut core, now);
        core.dispatch();
        result
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // The model has no half-done state worth stopping a test server for.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    fn dispatch(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            self.notify(event);
        }
        self.history.record(&self.engine.stats());
    }

    fn notify(&mut self, event: Event) {
        let Some(waiter) = self.waiters.get(&event.id) else {
            return;
        };
        waiter.send_modify(|progress| match event.kind {
            EventKind::FirstToken { .. } => progress.generated = progress.generated.max(1),
            EventKind::Tokens { generated } => progress.generated = generated,
            EventKind::Finished(usage) => {
                progress.generated = usage.completion_tokens;
                progress.end = Some(Ok(usage));
            }
            EventKind::Rejected(rejection) => progress.end = Some(Err(rejection)),
        });
        if let EventKind::Finished(_) | EventKind::Rejected(_) = event.kind {
            self.waiters.remove(&event.id);
        }
    }
}

impl InFlightGuard {
    /// Waits until there are more than `seen` tokens, or the end.
    pub async fn after(&mut self, seen: u32) -> GenerationProgress {
        // An error means that the sender is gone, which it is only after an end was sent.
        let _ = self
            .progress
            .wait_for(|progress| progress.end.is_some() || progress.generated > seen)
            .await;
        self.now()
    }

    /// Tokens of the request so far.
    pub fn now(&self) -> GenerationProgress {
        *self.progress.borrow()
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.progress.borrow().end.is_some() {
            return;
        }
        self.replica.update(|core, now| {
            if core.waiters.remove(&self.id).is_some() {
                core.engine.abort(now, self.id);
            }
        });
        self.replica.wake.notify_one();
    }
}
