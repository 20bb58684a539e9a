//! Load: clients in a closed loop, or requests at a fixed rate.
//!
//! In a closed loop each client sends its next request when the last response has ended, so the clients find the saturation of
//! a variant. At a fixed rate a request counts from its scheduled arrival, so a slow variant cannot slow the generator down.
//! A thread of its own keeps the schedule, because the runtime's timer has a resolution of milliseconds. A seed determines
//! the arrivals (exponential gaps), so every variant gets the same ones.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::connection::Connection;
use super::prompts::Prompts;
use super::workload::Workload;

/// Bound on concurrent requests at a fixed rate; the variant is overloaded beyond it, and further requests fail.
const CONNECTIONS_MAX: usize = 512;
/// Part of the time at a fixed rate that does not count: its requests open the connections.
const WARM_UP_PART: u32 = 10;

/// The form of a load.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Concurrent clients, each with one connection.
    Closed(u16),
    /// Requests per second, and the seed of their arrivals.
    Open(f64, u64),
}

/// The input of a load: an address, a workload and its prompts.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address of the variant.
    pub address: SocketAddr,
    /// Workload.
    pub workload: Workload,
    /// Source of the prompts.
    pub prompts: Arc<Prompts>,
}

/// The result of a load.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Requests with a complete response of status 200.
    pub completed: u64,
    /// Other requests.
    pub failed: u64,
    /// Time from the first request to the end of the last response.
    pub took: Duration,
    /// Time from each scheduled arrival after the warm-up, or in a closed loop from each request, to the end of the response, in
    /// microseconds.
    pub latency_micros: Vec<f64>,
}

impl Target {
    /// Applies a load for a time.
    ///
    /// # Errors
    /// When a connection or a thread cannot be opened, or no request completes.
    pub async fn drive(&self, load: Load, time: Duration) -> anyhow::Result<Tally> {
        let start = Instant::now();
        let mut tally = match load {
            Load::Closed(clients) => self.closed(clients, start + time).await?,
            Load::Open(per_second, seed) => self.open(per_second, seed, time).await?,
        };
        tally.took = start.elapsed();
        let (failed, address) = (tally.failed, self.address);
        ensure!(
            tally.completed > 0,
            "none of {failed} requests to {address} completed"
        );
        Ok(tally)
    }

    async fn closed(&self, clients: u16, end: Instant) -> anyhow::Result<Tally> {
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            tasks.spawn(self.clone().client(end));
        }
        let mut all = Tally::default();
        while let Some(ended) = tasks.join_next().await {
            let tally = ended??;
            all.completed += tally.completed;
            all.failed += tally.failed;
            all.latency_micros.extend(tally.latency_micros);
        }
        Ok(all)
    }

    async fn client(self, end: Instant) -> anyhow::Result<Tally> {
        let mut tally = Tally::default();
        let mut connection = Connection::open(self.address).await?;
        while Instant::now() < end {
            let start = Instant::now();
            let response = connection.request(&self.workload, &self.prompts).await;
            let is_failure = response.is_err();
            tally.add(response.map(|_| Some(start.elapsed())));
            if is_failure {
                connection = Connection::open(self.address).await?;
            }
        }
        Ok(tally)
    }

    async fn open(&self, per_second: f64, seed: u64, time: Duration) -> anyhow::Result<Tally> {
        let (sender, mut due) = mpsc::unbounded_channel();
        let offsets = arrivals(per_second, time, seed);
        let start = Instant::now() + Duration::from_millis(5);
        thread::Builder::new()
            .name("schedule".into())
            .spawn(move || keep_schedule(start, offsets, &sender))?;

        let idle = Arc::default();
        let mut requests = JoinSet::new();
        let mut tally = Tally::default();
        while let Some(offset) = due.recv().await {
            while let Some(ended) = requests.try_join_next() {
                tally.add(ended?);
            }
            if requests.len() >= CONNECTIONS_MAX {
                tally.failed += 1;
                continue;
            }
            let (target, idle) = (self.clone(), Arc::clone(&idle));
            requests.spawn(async move {
                target.request(&idle).await?;
                Ok((offset >= time / WARM_UP_PART).then(|| (start + offset).elapsed()))
            });
        }
        while let Some(ended) = requests.join_next().await {
            tally.add(ended?);
        }
        Ok(tally)
    }

    /// Sends one request over an idle connection or a new one.
    async fn request(&self, idle: &Mutex<Vec<Connection>>) -> anyhow::Result<()> {
        let lock = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let free = lock().pop();
        let mut connection = match free {
            Some(free) => free,
            None => Connection::open(self.address).await?,
        };
        connection.request(&self.workload, &self.prompts).await?;
        lock().push(connection);
        Ok(())
    }
}

impl Tally {
    /// Adds a failure, or a response with its latency after the warm-up.
    fn add(&mut self, ended: anyhow::Result<Option<Duration>>) {
        match ended {
            Ok(latency) => {
                self.completed += 1;
                let micros = latency.map(|latency| latency.as_secs_f64() * 1e6);
                self.latency_micros.extend(micros);
            }
            Err(_) => self.failed += 1,
        }
    }
}

/// Sends each offset when its time has come.
fn keep_schedule(start: Instant, offsets: Vec<Duration>, due: &mpsc::UnboundedSender<Duration>) {
    for offset in offsets {
        thread::sleep((start + offset).saturating_duration_since(Instant::now()));
        if due.send(offset).is_err() {
            return;
        }
    }
}

/// Arrivals of requests since the start.
fn arrivals(per_second: f64, time: Duration, seed: u64) -> Vec<Duration> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut at_s = 0.0_f64;
    let offsets = std::iter::from_fn(|| {
        at_s -= (1.0 - random.random::<f64>()).ln() / per_second;
        // The comparison also ends at a rate that is NaN.
        (at_s < time.as_secs_f64()).then(|| Duration::from_secs_f64(at_s))
    });
    offsets.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Upstream;
    use crate::workload::{PromptKind, WORKLOADS};

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

    async fn target(workload: Workload) -> (Upstream, Target) {
        let upstream = Upstream::start(1).await.unwrap();
        upstream.answer_in(workload.chunks);
        let target = Target {
            address: *upstream.addresses().first().unwrap(),
            workload,
            prompts: Arc::default(),
        };
        (upstream, target)
    }

    #[tokio::test]
    async fn clients_get_whole_and_streamed_responses() {
        for (chunks, prompts) in [(0, PromptKind::Unique), (3, PromptKind::MultiTurn)] {
            let workload = Workload {
                name: "test",
                prompt_bytes: 400_000,
                prompts,
                chunks,
            };
            let (_upstream, target) = target(workload).await;
            let time = Duration::from_millis(100);
            let tally = target.drive(Load::Closed(2), time).await.unwrap();
            assert!(tally.completed > 0 && tally.failed == 0, "{tally:?}");
        }
    }

    #[tokio::test]
    async fn requests_complete_at_their_rate_and_fail_without_a_server() {
        let (upstream, target) = target(*WORKLOADS.first().unwrap()).await;
        let half = Duration::from_millis(500);
        let tally = target.open(200.0, 1, half).await.unwrap();
        let counted = tally.latency_micros.len() as u64;
        assert_eq!(tally.failed, 0);
        assert!((50..150).contains(&tally.completed), "{tally:?}");
        assert!((1..tally.completed).contains(&counted), "{tally:?}");

        drop(upstream);
        let refused = target.open(200.0, 1, half).await.unwrap();
        assert!(refused.completed == 0 && refused.failed > 50);
        assert!(target.drive(Load::Open(200.0, 1), half).await.is_err());
    }
}
