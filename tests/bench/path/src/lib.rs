//! Cost of a request between client and replica: Envoy alone, with the filter, with all of Isotherm, with the least that could stand in
//! its place, and SGLang's router.
//!
//! Everything is on loopback, against [`upstream`] replicas that answer at once, under clients that send new
//! [`prompts`] all the time: the worst case of every router that remembers prompts. All [`running`]s run for the
//! whole time, and take turns in short windows, round after round with another one first, so that whatever else the
//! machine does meets each of them alike. CPU time per request is the figure to look at; requests per second depend
//! on how many cores there are, since the generator and the replicas use them too.
//!
//! Four parts: [`cost`] finds CPU time and how much each variant carries, and again for streams of every length at one rate, since
//! a variant that carries fewer long ones would have what it does once a second fall on fewer of them; [`latency`] finds what each
//! adds to a request's time at a third of what Isotherm carries, [`memory`] what is left of a million prompts.

pub mod awake;
pub mod closed;
mod connection;
pub mod cost;
mod goals;
pub mod latency;
pub mod measurements;
pub mod memory;
pub mod open;
mod pieces;
pub mod prompts;
mod report;
pub mod running;
pub mod upstream;
pub mod usage;
pub mod variant;
pub mod workload;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use awake::AwakeGuard;
use clap::{Args, ValueEnum};
use measurements::PathMeasurements;
use prompts::Prompts;
use running::RunningVariant;
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
#[derive(Args, Clone, Debug)]
pub struct Options {
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
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub memory_prompts: u64,
    /// Concurrent clients
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub clients: u16,
    /// Replicas
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// These variants only
    #[arg(long, value_name = "ROW", value_enum, num_args = 1..)]
    pub variants: Vec<Variant>,
    /// These workloads only, by their names in the table
    #[arg(long, value_name = "NAME", value_parser = Workload::named, num_args = 1..)]
    pub workloads: Vec<Workload>,
    /// The Python that may have `sglang_router` (`pip install sglang-router`)
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    /// Keep the processors from sleeping meanwhile, as root on Linux: waking them costs more than a light request does
    #[arg(long)]
    pub awake: bool,
}

impl Options {
    fn variants(&self) -> Vec<Variant> {
        let chosen =
            |variant: &Variant| self.variants.is_empty() || self.variants.contains(variant);
        let all = Variant::value_variants().iter().copied();
        all.filter(chosen).collect()
    }

    fn workloads(&self) -> Vec<Workload> {
        let chosen =
            |workload: &Workload| self.workloads.is_empty() || self.workloads.contains(workload);
        WORKLOADS.into_iter().filter(chosen).collect()
    }
}

/// Starts every variant, measures them in turns, and says what came out.
///
/// # Errors
/// When something does not start, or a variant answers nothing.
pub async fn measure(options: &Options) -> anyhow::Result<PathMeasurements> {
    let _awake = options.awake.then(AwakeGuard::keep).transpose()?;
    let upstream = Upstream::start(usize::from(options.replicas)).await?;
    let subjects = subjects(options, upstream.addresses()).await?;
    let variants = subjects.iter().map(|running| running.variant).collect();
    let mut bench = Bench {
        options,
        workloads: options.workloads(),
        upstream,
        prompts: Arc::default(),
        report: PathMeasurements::new(options, variants, sglang_version(options)),
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
    workloads: Vec<Workload>,
    upstream: Upstream,
    subjects: Vec<RunningVariant>,
    prompts: Arc<Prompts>,
    report: PathMeasurements,
}

impl Bench<'_> {
    /// The variants, another one first in each round.
    fn turns(&self, round: u32) -> impl Iterator<Item = &RunningVariant> {
        let first = round as usize % self.subjects.len().max(1);
        let (later, sooner) = self.subjects.split_at(first);
        sooner.iter().chain(later)
    }

    async fn costs(&mut self) -> anyhow::Result<()> {
        let time = seconds(self.options.seconds);
        for running in &self.subjects {
            let rest = cost::idle(running, time).await?;
            self.report.idle.push(rest);
        }
        for round in 0..self.options.rounds {
            eprintln!("costs: round {} of {}", round + 1, self.options.rounds);
            for workload in &self.workloads {
                self.upstream.answer_in(workload.chunks);
                let mut samples = Vec::new();
                for running in self.turns(round) {
                    let clients = self.options.clients;
                    samples
                        .push(cost::turn(running, workload, clients, time, &self.prompts).await?);
                }
                self.report.samples.extend(samples);
            }
        }
        for running in &self.subjects {
            let own = self
                .report
                .samples
                .iter()
                .filter(|sample| sample.variant == running.variant);
            let seen = own.map(|sample| sample.requests).sum();
            self.report.memory_after.push(memory::look(running, seen)?);
        }
        Ok(())
    }

    /// Streams of every length at the same rate.
    async fn streams(&mut self) -> anyhow::Result<()> {
        let streamed = || self.workloads.iter().filter(|workload| workload.chunks > 0);
        let Some(longest) = streamed().max_by_key(|workload| workload.chunks) else {
            return Ok(());
        };
        let rate = self.saturation(longest)? * STREAMS_SHARE;
        let time = seconds(self.options.seconds) * STREAMS_TIMES;
        let mut samples = Vec::new();
        for round in 0..self.options.rounds {
            eprintln!(
                "streams at one rate: round {} of {}",
                round + 1,
                self.options.rounds
            );
            for workload in streamed() {
                self.upstream.answer_in(workload.chunks);
                for running in self.turns(round) {
                    let (prompts, seed) = (&self.prompts, u64::from(round) + 1);
                    let turn = cost::turn_at_rate(running, workload, rate, time, seed, prompts);
                    samples.push(turn.await?);
                }
            }
        }
        self.report.streams = samples;
        Ok(())
    }

    /// Requests per second of Isotherm at saturation; without it, of the slowest variant.
    fn saturation(&self, workload: &Workload) -> anyhow::Result<f64> {
        let rate = |variant| {
            let rate = self.report.rate(variant, workload);
            rate.map(|rate| rate.median)
        };
        let variants = self.subjects.iter().map(|subject| subject.variant);
        rate(Variant::Isotherm)
            .or_else(|| variants.filter_map(rate).reduce(f64::min))
            .context("no variant has completed a request")
    }

    async fn latencies(&mut self) -> anyhow::Result<()> {
        let time = seconds(self.options.latency_seconds);
        if time.is_zero() {
            return Ok(());
        }
        for round in 0..self.options.rounds {
            eprintln!("latencies: round {} of {}", round + 1, self.options.rounds);
            for workload in self.workloads.iter().filter(|workload| workload.is_plain()) {
                let rate = self.saturation(workload)? * LATENCY_SHARE;
                self.upstream.answer_in(workload.chunks);
                let mut turns = Vec::new();
                let keeps_up = |variant| self.report.keeps_up(variant, workload, rate);
                for running in self
                    .turns(round)
                    .filter(|running| keeps_up(running.variant))
                {
                    let prompts = &self.prompts;
                    turns.push(latency::turn(running, workload, round, rate, time, prompts).await?);
                }
                self.report.latencies.extend(turns);
            }
        }
        Ok(())
    }

    async fn memories(&mut self) -> anyhow::Result<()> {
        let count = self.options.memory_prompts;
        let Some(workload) = WORKLOADS.first().filter(|_| count > 0) else {
            return Ok(());
        };
        self.upstream.answer_in(workload.chunks);
        for running in self
            .subjects
            .iter()
            .filter(|running| running.variant.remembers())
        {
            eprintln!("memory: {count} prompts for {}", running.variant.name());
            let clients = self.options.clients;
            let looks = memory::fill(running, workload, clients, count, &self.prompts).await?;
            self.report.memory.extend(looks);
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
        match RunningVariant::start(variant, replicas, &options.python).await? {
            Some(running) => subjects.push(running),
            None => eprintln!(
                "left out: sglang-router, which {} does not have (`pip install sglang-router`, and see --python)",
                options.python.display()
            ),
        }
    }
    Ok(subjects)
}

/// The installed release of `sglang-router`, if any.
fn sglang_version(options: &Options) -> Option<String> {
    const PROGRAM: &str =
        "import importlib.metadata; print(importlib.metadata.version('sglang-router'))";
    let printed = Command::new(&options.python)
        .args(["-c", PROGRAM])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&printed.stdout).trim().to_owned())
}

fn seconds(count: u32) -> Duration {
    Duration::from_secs(u64::from(count))
}
