//! Cost of a request between client and replica: Envoy alone, with the filter, with Isotherm, with a minimal external
//! processor, and the Shepherd model gateway.
//!
//! Everything runs on loopback, against [`upstream`] replicas that respond at once. Clients send new [`prompts`] all the time,
//! the worst case of a router that remembers prompts. All [`running`] variants take turns in short windows, and each round
//! begins with another one, so other work on the machine affects all alike. CPU time per request is the main figure; requests
//! per second depend on the number of cores, which the generator and the replicas use too.
//!
//! The bench has four parts:
//!
//! - cost: CPU time per request, and the saturation of each variant
//! - streams: CPU time per request for streams of every length at one rate. At saturation, work per second falls on fewer
//!   requests the longer the streams are.
//! - latency: the time that a variant adds at a third of Isotherm's saturation, or for one client at a time
//! - [`memory`]: the growth with a million prompts

pub mod awake;
mod connection;
pub mod load;
pub mod measurements;
pub mod memory;
pub mod prompts;
mod report;
pub mod running;
pub mod turn;
pub mod upstream;
pub mod usage;
pub mod variant;
pub mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use awake::AwakeGuard;
use clap::{Args, ValueEnum};
use isotherm_harness::peers::PythonRouter;
use load::{Load, Target};
use measurements::PathMeasurements;
use memory::Memory;
use prompts::Prompts;
use running::RunningVariant;
use serde::Serialize;
use turn::{Turn, idle, turn};
use upstream::Upstream;
use variant::Variant;
use workload::{WORKLOADS, Workload};

/// Rate of the latency measurement over Isotherm's saturation.
const LATENCY_SHARE: f64 = 1.0 / 3.0;
/// Rate of the comparison of streams over Isotherm's saturation with the longest streams.
const STREAMS_SHARE: f64 = 0.5;
/// Factor of the length of these turns, which have few requests per second.
const STREAMS_TIMES: u32 = 2;

/// Command-line options of the bench.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub struct Options {
    /// Compares endpoint pickers: Envoy's and theirs as variants, whole responses, and the latency of one client
    #[arg(long)]
    pub pickers: bool,
    /// Turns of each variant; medians are over these
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// Length of a turn of the latency measurement; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=3_600))]
    pub latency_seconds: u32,
    /// Unique prompts for the memory measurement; 0 for none
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        default_value_if("pickers", "true", "0")
    )]
    pub memory_prompts: u64,
    /// Concurrent clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub clients: u16,
    /// Replicas
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// These variants only
    #[arg(long, value_name = "ROW", value_enum, num_args = 1..)]
    #[serde(skip)]
    pub variants: Vec<Variant>,
    /// These workloads only, by their names in the table
    #[arg(long, value_name = "NAME", value_parser = Workload::named, num_args = 1..)]
    #[serde(skip)]
    pub workloads: Vec<Workload>,
    /// The Python that may have `smg` (`pip install smg`)
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    #[serde(skip)]
    pub python: PathBuf,
    /// Keeps the CPUs from sleeping, as root on Linux: waking a CPU costs more than a light request
    #[arg(long)]
    pub awake: bool,
}

impl Options {
    fn variants(&self) -> Vec<Variant> {
        let all = Variant::value_variants();
        if self.pickers && self.variants.is_empty() {
            return requested(all, &Variant::PICKERS);
        }
        requested(all, &self.variants)
    }

    fn workloads(&self) -> Vec<Workload> {
        let mut workloads = requested(&WORKLOADS, &self.workloads);
        if self.pickers && self.workloads.is_empty() {
            workloads.retain(Workload::is_plain);
        }
        workloads
    }
}

/// The requested elements of `all`, in its order; every element without a request.
fn requested<T: Copy + PartialEq>(all: &[T], requested: &[T]) -> Vec<T> {
    let is_requested = |element: &T| requested.is_empty() || requested.contains(element);
    all.iter().copied().filter(is_requested).collect()
}

/// Starts every variant, and measures them in turns.
///
/// # Errors
/// When something does not start, or a variant completes no request.
pub async fn measure(options: &Options) -> anyhow::Result<PathMeasurements> {
    let _awake = options.awake.then(AwakeGuard::keep).transpose()?;
    let upstream = Upstream::start(usize::from(options.replicas)).await?;
    let subjects = subjects(options, upstream.addresses()).await?;
    let variants: Vec<Variant> = subjects.iter().map(|running| running.variant).collect();
    let has_smg = variants.contains(&Variant::Smg);
    let mut bench = Bench {
        options,
        upstream,
        prompts: Arc::default(),
        report: PathMeasurements {
            options: options.clone(),
            smg_version: has_smg
                .then(|| PythonRouter::Smg.version(&options.python))
                .flatten(),
            variants,
            workloads: options.workloads(),
            ..PathMeasurements::default()
        },
        subjects,
    };
    bench.costs().await?;
    bench.streams().await?;
    bench.latencies().await?;
    bench.memories().await?;
    Ok(bench.report)
}

struct Bench<'a> {
    options: &'a Options,
    upstream: Upstream,
    subjects: Vec<RunningVariant>,
    prompts: Arc<Prompts>,
    report: PathMeasurements,
}

impl Bench<'_> {
    /// Runs every round of the workloads in `is_wanted`. `load` returns the load of a variant's turn; `None` omits the turn.
    async fn rounds(
        &self,
        part: &str,
        time: Duration,
        is_wanted: fn(&Workload) -> bool,
        load: impl Fn(Variant, &Workload, u32) -> Option<Load>,
    ) -> anyhow::Result<Vec<Turn>> {
        let mut turns = Vec::new();
        for round in 0..self.options.rounds {
            eprintln!("{part}: round {} of {}", round + 1, self.options.rounds);
            let first = round as usize % self.subjects.len().max(1);
            let (later, sooner) = self.subjects.split_at(first);
            let workloads = self.report.workloads.iter();
            for workload in workloads.filter(|workload| is_wanted(workload)) {
                self.upstream.answer_in(workload.chunks);
                for running in sooner.iter().chain(later) {
                    if let Some(load) = load(running.variant, workload, round) {
                        let turn = turn(running, workload, load, time, round, &self.prompts);
                        turns.push(turn.await?);
                    }
                }
            }
        }
        Ok(turns)
    }

    async fn costs(&mut self) -> anyhow::Result<()> {
        let time = seconds(self.options.seconds);
        for running in &self.subjects {
            self.report.idle.push(idle(running, time).await?);
        }
        let load = Load::Closed(self.options.clients);
        let turns = self.rounds("costs", time, |_| true, |_, _, _| Some(load));
        self.report.samples = turns.await?;
        for running in &self.subjects {
            let turns = self.report.samples.iter();
            let turns = turns.filter(|turn| turn.variant == running.variant);
            let prompts = turns.map(|turn| turn.completed).sum();
            self.report.memory_after.push(Memory::of(running, prompts)?);
        }
        Ok(())
    }

    /// Streams of every length at the same rate.
    async fn streams(&mut self) -> anyhow::Result<()> {
        let is_streamed = |workload: &Workload| workload.chunks > 0;
        let workloads = self.report.workloads.iter();
        let streamed = workloads.filter(|workload| is_streamed(workload));
        let Some(longest) = streamed.max_by_key(|workload| workload.chunks) else {
            return Ok(());
        };
        let saturation = self.saturation(longest);
        let rate = saturation.context("no variant completed a request")? * STREAMS_SHARE;
        let time = seconds(self.options.seconds) * STREAMS_TIMES;
        let load = |_, _: &Workload, round| Some(Load::Open(rate, u64::from(round) + 1));
        self.report.streams = self.rounds("streams", time, is_streamed, load).await?;
        Ok(())
    }

    /// Requests per second of Isotherm at saturation; without it, of the slowest variant.
    fn saturation(&self, workload: &Workload) -> Option<f64> {
        let rate = |variant| Some(self.report.rate(variant, workload)?.median);
        let rates = || self.report.variants.iter().copied().filter_map(rate);
        rate(Variant::Isotherm).or_else(|| rates().reduce(f64::min))
    }

    async fn latencies(&mut self) -> anyhow::Result<()> {
        let time = seconds(self.options.latency_seconds);
        if time.is_zero() {
            return Ok(());
        }
        let load = |variant, workload: &Workload, round| {
            if self.options.pickers {
                return Some(Load::Closed(1));
            }
            let rate = self.saturation(workload)? * LATENCY_SHARE;
            let keeps_up = self.report.keeps_up(variant, workload, rate);
            keeps_up.then_some(Load::Open(rate, u64::from(round) + 1))
        };
        let turns = self.rounds("latencies", time, Workload::is_plain, load);
        self.report.latencies = turns.await?;
        Ok(())
    }

    async fn memories(&mut self) -> anyhow::Result<()> {
        let count = self.options.memory_prompts;
        let Some(workload) = WORKLOADS.first().filter(|_| count > 0) else {
            return Ok(());
        };
        self.upstream.answer_in(workload.chunks);
        let subjects = self.subjects.iter();
        for running in subjects.filter(|running| running.variant.remembers()) {
            eprintln!("memory: {count} prompts for {}", running.variant.name());
            let target = Target {
                address: running.address,
                workload: *workload,
                prompts: Arc::clone(&self.prompts),
            };
            let readings = memory::fill(running, &target, self.options.clients, count).await?;
            self.report.memory.extend(readings);
        }
        Ok(())
    }
}

async fn subjects(
    options: &Options,
    replicas: &[std::net::SocketAddr],
) -> anyhow::Result<Vec<RunningVariant>> {
    let mut subjects = Vec::new();
    for variant in options.variants() {
        subjects.extend(RunningVariant::start(variant, replicas, &options.python).await?);
    }
    Ok(subjects)
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(u64::from(count))
}
