//! Snapshots of a service's state, and rates over the last of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::admin::view::{CountersView, PoolView, RegionsView, ReplicaView};
use crate::cli::client::AdminClient;
use crate::cli::regions;

/// The number of snapshots that rates cover.
const WINDOW_LENGTH: usize = 10;

/// A snapshot of a service's state.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) taken: Instant,
    pub(super) pools: Vec<PoolView>,
    pub(super) replicas: Vec<ReplicaView>,
    pub(super) regions: RegionsView,
}

impl Snapshot {
    pub(super) async fn take(client: &AdminClient) -> anyhow::Result<Self> {
        Ok(Self {
            pools: client.get("/api/pools").await?,
            replicas: client.get("/api/replicas").await?,
            regions: client.get(regions::PATH).await?,
            taken: Instant::now(),
        })
    }
}

/// The last snapshots.
#[derive(Debug)]
pub(super) struct Window {
    before: VecDeque<(Instant, BTreeMap<String, CountersView>)>,
    pub(super) now: Snapshot,
    /// Error of the last attempt.
    pub(super) problem: Option<String>,
}

/// Rates of a pool over the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rates {
    /// Requests dispatched per second.
    pub(super) decisions_per_s: f64,
    /// Share of prompt tokens that engines found in their caches, from 0 to 1; `None` if no engine reports it.
    pub(super) hit_ratio: Option<f64>,
}

impl Window {
    pub(super) fn new(now: Snapshot) -> Self {
        Self {
            before: VecDeque::new(),
            now,
            problem: None,
        }
    }

    /// Adds the next snapshot. After a failed attempt the last snapshot stays.
    pub(super) fn push(&mut self, next: anyhow::Result<Snapshot>) {
        match next {
            Ok(next) => {
                let now = std::mem::replace(&mut self.now, next);
                let pools = now.pools.into_iter();
                let counters = pools.map(|pool| (pool.pool, pool.counters)).collect();
                self.before.push_back((now.taken, counters));
                if self.before.len() > WINDOW_LENGTH {
                    self.before.pop_front();
                }
                self.problem = None;
            }
            Err(error) => self.problem = Some(format!("{error:#}")),
        }
    }

    /// Returns the rates of `pool`. With one snapshot only, the hit ratio covers the time since the service's start.
    pub(super) fn rates(&self, pool: &PoolView) -> Rates {
        let none = CountersView::default();
        let (since, before) = match self.before.front() {
            Some((taken, counters)) => (
                self.now.taken.duration_since(*taken),
                counters.get(&pool.pool).unwrap_or(&none),
            ),
            None => (Duration::ZERO, &none),
        };
        let now = &pool.counters;
        let dispatched = |counters: &CountersView| counters.decisions.values().sum::<u64>();
        let decisions = dispatched(now).saturating_sub(dispatched(before));
        let prompt = now
            .measured_prompt_tokens
            .saturating_sub(before.measured_prompt_tokens);
        let cached = now
            .measured_cached_tokens
            .saturating_sub(before.measured_cached_tokens);
        Rates {
            decisions_per_s: if since.is_zero() {
                0.0
            } else {
                decisions as f64 / since.as_secs_f64()
            },
            hit_ratio: (prompt > 0).then(|| cached as f64 / prompt as f64),
        }
    }
}
