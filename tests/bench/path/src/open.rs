//! Requests at a fixed rate, whether the way keeps up or not.
//!
//! A request counts from the moment at which it was due, so that a way which falls behind cannot hide it by slowing the
//! generator down. The moments come from a thread of their own, since the runtime's timer knows milliseconds only,
//! and are drawn once from a seed (exponential gaps), so that every row meets the same ones.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::prompts::{ConversationState, Prompts};
use super::workload::Workload;

/// Connections at once; a way so far behind is overloaded, and further requests have failed.
const CONNECTIONS_MAX: usize = 512;
/// Requests of the beginning, which open connections, do not count: this share of the time.
const WARM_SHARE: u32 = 10;

/// Latencies of the requests of one window.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Of each answered request that counts, in microseconds, sorted.
    sorted_us: Vec<u64>,
    /// Requests that were answered, those of the beginning as well.
    pub good: u64,
    /// Requests that were not answered.
    pub failed: u64,
}

impl Latencies {
    /// Number of completed requests after the warm-up.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.sorted_us.len()
    }

    /// The latency at a percentile in microseconds; `None` without requests.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let last = self.sorted_us.len().checked_sub(1)?;
        let rank = (percent / 100.0 * last as f64).round() as usize;
        self.sorted_us.get(rank.min(last)).map(|us| *us as f64)
    }
}

/// A connection that waits for its next request, and the conversation on it.
type Idle = (Connection, ConversationState);

/// Sends this many requests a second for this long.
///
/// # Errors
/// When the thread that keeps the time cannot be started.
pub async fn drive(
    target: SocketAddr,
    workload: &Workload,
    per_second: f64,
    time: Duration,
    seed: u64,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Latencies> {
    let (sender, mut due) = mpsc::unbounded_channel();
    let counted_from = time / WARM_SHARE;
    let offsets = arrivals(per_second, time, seed);
    let start = Instant::now() + Duration::from_millis(5);
    thread::Builder::new()
        .name("pace".into())
        .spawn(move || keep_time(start, offsets, &sender))?;

    let idle: Arc<Mutex<Vec<Idle>>> = Arc::default();
    let mut requests = JoinSet::new();
    let mut all = Latencies::default();
    while let Some(offset) = due.recv().await {
        while let Some(ended) = requests.try_join_next() {
            all.add(ended?);
        }
        if requests.len() >= CONNECTIONS_MAX {
            all.failed += 1;
            continue;
        }
        let (idle, prompts, workload) = (Arc::clone(&idle), Arc::clone(prompts), *workload);
        requests.spawn(async move {
            one(target, &workload, &idle, &prompts).await?;
            Ok((offset >= counted_from).then(|| (start + offset).elapsed()))
        });
    }
    while let Some(ended) = requests.join_next().await {
        all.add(ended?);
    }
    all.sorted_us.sort_unstable();
    Ok(all)
}

impl Latencies {
    /// Adds an answer, with its time unless it is of the beginning, or a failure.
    fn add(&mut self, ended: anyhow::Result<Option<Duration>>) {
        match ended {
            Ok(took) => {
                self.good += 1;
                let us = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                self.sorted_us.extend(took.map(us));
            }
            Err(_) => self.failed += 1,
        }
    }
}

async fn one(
    target: SocketAddr,
    workload: &Workload,
    idle: &Mutex<Vec<Idle>>,
    prompts: &Prompts,
) -> anyhow::Result<()> {
    let free = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let (mut connection, mut conversation) = match free {
        Some(free) => free,
        None => (
            Connection::open(target).await?,
            ConversationState::default(),
        ),
    };
    connection
        .ask(prompts.next(workload, &mut conversation))
        .await?;
    idle.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((connection, conversation));
    Ok(())
}

/// Sends each offset when its moment has come.
fn keep_time(start: Instant, offsets: Vec<Duration>, due: &mpsc::UnboundedSender<Duration>) {
    for offset in offsets {
        thread::sleep((start + offset).saturating_duration_since(Instant::now()));
        if due.send(offset).is_err() {
            return;
        }
    }
}

/// When requests are due, since the start.
fn arrivals(per_second: f64, time: Duration, seed: u64) -> Vec<Duration> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut offsets = Vec::new();
    let mut at_s = 0.0_f64;
    loop {
        let draw: f64 = random.random();
        at_s -= (1.0 - draw).ln() / per_second;
        // A rate that is no rate ends here, too.
        if at_s.is_nan() || at_s >= time.as_secs_f64() {
            return offsets;
        }
        offsets.push(Duration::from_secs_f64(at_s));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use crate::workload::WORKLOADS;

    #[test]
    fn arrivals_have_their_rate_and_are_the_same_for_the_same_seed() {
        let ten = Duration::from_secs(10);
        let offsets = arrivals(1_000.0, ten, 7);
        assert!(offsets.len().abs_diff(10_000) < 400, "{}", offsets.len());
        assert!(offsets.is_sorted());
        assert_eq!(offsets, arrivals(1_000.0, ten, 7));
        assert_ne!(offsets, arrivals(1_000.0, ten, 8));
        assert!(arrivals(f64::NAN, ten, 7).is_empty());
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let latencies = Latencies {
            sorted_us: (1..=101).collect(),
            ..Latencies::default()
        };
        let found = [0.0, 50.0, 99.0, 100.0].map(|percent| latencies.percentile(percent));
        assert_eq!(found, [Some(1.0), Some(51.0), Some(100.0), Some(101.0)]);
        assert_eq!(Latencies::default().percentile(50.0), None);
    }

    #[tokio::test]
    async fn requests_are_answered_at_their_rate_and_those_of_nobody_fail() {
        let upstream = Upstream::start(1).await.unwrap();
        let target = *upstream.addresses().first().unwrap();
        let asked = WORKLOADS.first().unwrap();
        let half = Duration::from_millis(500);
        let answered = drive(target, asked, 200.0, half, 1, &Arc::default())
            .await
            .unwrap();
        assert_eq!(answered.failed, 0);
        assert!((50..150).contains(&answered.answered()), "{answered:?}");
        assert!(answered.good > answered.answered() as u64, "{answered:?}");
        assert!(answered.percentile(50.0) <= answered.percentile(99.0));

        drop(upstream);
        let refused = drive(target, asked, 200.0, half, 1, &Arc::default())
            .await
            .unwrap();
        assert!(refused.answered() == 0 && refused.failed > 50);
    }
}
