//! Probes every replica of a pool.
//!
//! Each replica has a task. Rejected: one loop over all replicas, in which a replica that hangs would delay the probes of
//! all others by its timeout. A load carries the time at which its probe was *sent*: it does not include requests that
//! were dispatched later, and the routing core must know that.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use isotherm_router::{ReplicaId, Time};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::client::{self, ReplicaClient};
use super::connections::ProbeConnections;
use super::fetch::ProbeError;
use super::load::PageReport;
use super::load_probe::LoadProbe;
use super::news::{COLLECTED_FOR, News, PoolNews};
use super::schedule::ProbeSchedule;
use super::stretch::Stretch;
use super::threads::ProbeThreads;
use crate::config::PoolConfig;
use crate::http_client::HttpClient;
use crate::metrics::ProbeMetrics;
use crate::metrics::probe::PoolProbeMetrics;
use crate::pool::Pool;
use crate::tasks::{KeyedTasks, vital};

/// The jitter of pauses, as factors of the interval.
const JITTER: Range<f64> = 0.9..1.1;

/// Probes the replicas of a pool, until the pool is dropped.
pub(super) async fn probe_pool(
    pool: Weak<Pool>,
    http: HttpClient,
    metrics: ProbeMetrics,
    (threads, connections): (Arc<ProbeThreads>, Arc<ProbeConnections>),
) {
    let Some(strong) = pool.upgrade() else {
        return;
    };
    let (name, mut members) = (Arc::clone(strong.name()), strong.members());
    let config = strong.config();
    drop(strong);
    let loaded = ReplicaClient::load(&config.borrow().probe, &http);
    let (clients, client) = watch::channel(loaded);
    // Dropping the set ends its task.
    let mut follower = JoinSet::new();
    follower.spawn(vital(
        "files of probes",
        client::follow(config, http, clients),
    ));
    let metrics = Arc::new(metrics.pool(&name));
    let news = Arc::new(PoolNews::default());
    let mut tasks = KeyedTasks::new();
    let mut lines = tokio::time::interval(COLLECTED_FOR);
    loop {
        let current = Arc::clone(&members.borrow_and_update());
        tasks.keep(|id| current.iter().any(|member| member.id == *id));
        for member in current.iter() {
            tasks.ensure(member.id, || {
                let probe = LoadProbe::new(client.clone(), member.addr, connections.add_replica());
                let replica = (member.id, member.addr);
                let told = (Arc::clone(&metrics), Arc::clone(&news));
                let pool = pool.clone();
                threads.spawn(member.id, |stretch| {
                    vital("probe", probe_replica(pool, replica, probe, told, stretch))
                })
            });
        }
        loop {
            tokio::select! {
                changed = members.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                _ = lines.tick() => {
                    news.log(&name);
                    metrics.stretched(threads.largest_stretch());
                }
            }
        }
    }
}

/// Probes one replica until its task is aborted.
async fn probe_replica(
    pool: Weak<Pool>,
    (id, addr): (ReplicaId, SocketAddr),
    mut probe: LoadProbe,
    (metrics, news): (Arc<PoolProbeMetrics>, Arc<PoolNews>),
    stretch: Stretch,
) {
    let Some((clock, mut config)) = pool.upgrade().map(|pool| (pool.clock(), pool.config())) else {
        return;
    };
    let mut schedule = ProbeSchedule::default();
    // The standard library seeds its hashers from the system.
    let mut random = SmallRng::seed_from_u64(RandomState::new().hash_one(addr));
    loop {
        let current = Arc::clone(&config.borrow_and_update());
        let turn = probe.turn().await;
        let start = Instant::now();
        let on_late = || {
            if let Some(pool) = pool.upgrade() {
                pool.probe_failed(id);
            }
        };
        let result = probe.probe(&current, &on_late).await;
        let took = start.elapsed();
        metrics.observe(took, result.as_ref().err());
        let jitter = random.random_range(JITTER);
        // No request is dispatched to a replica before its first list of adapters.
        let is_first = result.is_ok() && probe.has_new_list();
        let mut listed = None;
        if is_first {
            listed = probe.list_adapters(&current, jitter).await;
        }
        let is_up = result.is_ok();
        if is_up && schedule.has_failed() {
            probe.expire_list();
        }
        let Some(strong) = pool.upgrade() else {
            return;
        };
        if let Some(listed) = listed {
            strong.models_listed(id, listed);
        }
        tell_engine(&strong, &mut probe, addr, &news);
        let times = (clock.time_of(start), clock.now());
        let woken = apply(&strong, (id, addr), result, times, (&mut schedule, &news));
        drop(strong);
        if is_up && let Some(listed) = probe.list_adapters(&current, jitter).await {
            let Some(pool) = pool.upgrade() else {
                return;
            };
            pool.models_listed(id, listed);
        }
        drop(turn);
        let pauses = schedule.pauses(stretch.stretched(current.probe.interval), took, jitter);
        if has_changed_before_next(pauses, woken, &mut config).await {
            probe.forget();
        }
    }
}

/// Tells the pool the engine that the probe has read, and the log a new one.
fn tell_engine(pool: &Pool, probe: &mut LoadProbe, addr: SocketAddr, news: &PoolNews) {
    if let Some(engine) = probe.engine() {
        pool.engine_found(engine);
    }
    if let Some((engine, path)) = probe.new_engine() {
        news.tell(News::Detected(engine, path), addr, "");
    }
}

/// Reports the result of a probe that was sent and answered at these times. Returns what wakes the probes of a replica
/// that has no request.
fn apply(
    pool: &Pool,
    (id, addr): (ReplicaId, SocketAddr),
    result: Result<PageReport, ProbeError>,
    (sent, answered): (Time, Time),
    (schedule, news): (&mut ProbeSchedule, &PoolNews),
) -> Option<Arc<Notify>> {
    match result {
        Ok(PageReport {
            load,
            counters,
            adapters,
        }) => {
            if schedule.succeeded() {
                news.tell(News::AnswersAgain, addr, "");
            }
            if let Some(adapters) = adapters {
                pool.adapters_reported(id, &adapters, sent);
            }
            let is_idle = load.pending == 0 && load.running.unwrap_or(0) == 0;
            pool.failures().probe_succeeded(id);
            pool.running_reported(id, load.running);
            pool.probed(id, load, sent);
            if let Some(counters) = counters {
                let has_several = pool.counters_reported(id, counters, sent);
                if schedule.counted(has_several) {
                    news.tell(News::SeveralProcesses, addr, "");
                }
            }
            is_idle.then(|| pool.rest(id)).flatten()
        }
        Err(error) if error.is_without_metrics() => {
            if schedule.answered_without_metrics(error.is_costly()) {
                news.tell(News::WithoutMetrics, addr, &error);
            }
            pool.failures().probe_succeeded(id);
            // The answer shows that the replica is up now, and nothing of the requests that it has.
            pool.answered_without_metrics(id, answered);
            None
        }
        Err(error) => {
            if schedule.failed() {
                news.tell(News::Failed, addr, &error);
            }
            pool.probe_failed(id);
            pool.failures().probe_failed(id, &error);
            None
        }
    }
}

/// Waits for the next probe; that of an idle replica rests until a request wakes it. Returns true at once if the configuration
/// changes.
async fn has_changed_before_next(
    [pause, rest]: [Duration; 2],
    woken: Option<Arc<Notify>>,
    config: &mut watch::Receiver<Arc<PoolConfig>>,
) -> bool {
    if let Some(woken) = woken {
        tokio::select! {
            () = woken.notified() => {}
            has_changed = has_changed_within(rest, config) => return has_changed,
        }
    }
    has_changed_within(pause, config).await
}

/// Waits for a time. Returns true at once if the configuration changes.
async fn has_changed_within(
    pause: Duration,
    config: &mut watch::Receiver<Arc<PoolConfig>>,
) -> bool {
    tokio::select! {
        () = tokio::time::sleep(pause) => false,
        // An error means that the pool is gone; the caller notices.
        changed = config.changed() => changed.is_ok(),
    }
}
