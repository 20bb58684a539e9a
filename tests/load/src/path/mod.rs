//! What a request costs on its way: Envoy alone, with the filter, with all of Isotherm, and SGLang's router.
//!
//! Everything is on loopback, against [`upstream`] replicas that answer at once, under [`clients`] that send prompts
//! which nobody has sent before: the worst case of every router that remembers prompts. All [`subject`]s run for the
//! whole time, and take turns in short windows, round after round with another one first, so that whatever else the
//! machine does meets each of them alike. CPU time per request is the figure to look at; requests per second depend
//! on how many cores there are, since the generator and the replicas use them too.

pub mod clients;
pub mod report;
pub mod subject;
pub mod upstream;
pub mod usage;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use clients::{Prompts, Tally, Workload, drive};
use report::{Memory, Report, Sample};
use subject::Subject;
use upstream::Upstream;

/// What is asked: short, long and very long prompts with whole answers; then streamed answers.
pub const WORKLOADS: [Workload; 6] = [
    workload("4 KB", 4 << 10, 0),
    workload("64 KB", 64 << 10, 0),
    workload("400 KB", 400 << 10, 0),
    workload("4 KB, 1 chunk", 4 << 10, 1),
    workload("4 KB, 100 chunks", 4 << 10, 100),
    workload("4 KB, 1,000 chunks", 4 << 10, 1_000),
];

/// How long, how often and with what.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// How often each row takes its turn; medians are over these
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub rounds: u32,
    /// How long one turn lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    pub seconds: u32,
    /// How many clients ask at the same time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub clients: u16,
    /// How many replicas answer
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub replicas: u16,
    /// The Python that may have `sglang_router` (`pip install sglang-router`)
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
}

/// Starts every row, measures them in turns, and says what came out.
///
/// # Errors
/// When something does not start, or a row answers nothing.
pub async fn measure(options: &Options) -> anyhow::Result<Report> {
    let upstream = Upstream::start(usize::from(options.replicas)).await?;
    let subjects = subjects(options, upstream.addresses()).await?;
    let prompts = Arc::new(Prompts::default());
    let time = Duration::from_secs(u64::from(options.seconds));
    let mut samples = Vec::new();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for workload in &WORKLOADS {
            upstream.answer_in(workload.chunks);
            for turn in 0..subjects.len() {
                let index = (turn + round as usize) % subjects.len();
                let subject = subjects.get(index).context("no such row")?;
                // Connections, caches and the clock of the processor settle before it counts.
                drive(
                    subject.address,
                    workload,
                    options.clients,
                    time / 10,
                    &prompts,
                )
                .await?;
                samples.push(sample(subject, workload, options.clients, time, &prompts).await?);
            }
        }
    }
    let memory = subjects.iter().map(|subject| memory(subject, &samples));
    Ok(Report {
        rounds: options.rounds,
        seconds: options.seconds,
        clients: options.clients,
        replicas: options.replicas,
        memory: memory.collect::<anyhow::Result<_>>()?,
        samples,
    })
}

const fn workload(name: &'static str, prompt_bytes: usize, chunks: u32) -> Workload {
    Workload {
        name,
        prompt_bytes,
        chunks,
    }
}

async fn subjects(
    options: &Options,
    replicas: &[std::net::SocketAddr],
) -> anyhow::Result<Vec<Subject>> {
    let mut subjects = vec![
        Subject::plain(replicas).await?,
        Subject::filter_alone(replicas).await?,
        Subject::isotherm(replicas).await?,
        Subject::isotherm_unix(replicas).await?,
    ];
    match Subject::sglang_router(&options.python, replicas).await? {
        Some(router) => subjects.push(router),
        None => eprintln!(
            "left out: sglang-router, which {} does not have (`pip install sglang-router`, and see --python)",
            options.python.display()
        ),
    }
    Ok(subjects)
}

/// One turn: what the processes of a row used, by what they answered.
async fn sample(
    subject: &Subject,
    workload: &Workload,
    clients: u16,
    time: Duration,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Sample> {
    let used = || {
        let processes = subject.processes()?.into_iter();
        processes
            .map(|(label, process)| Ok((label, usage::cpu(process.id())?)))
            .collect::<anyhow::Result<Vec<_>>>()
    };
    let before = used()?;
    let tally = drive(subject.address, workload, clients, time, prompts).await?;
    let after = used()?;
    let Tally { good, failed, took } = tally;
    let micros = before
        .iter()
        .zip(&after)
        .map(|((label, before), (_, after))| {
            let spent = after.saturating_sub(*before);
            (*label, spent.as_secs_f64() * 1e6 / good as f64)
        });
    Ok(Sample {
        subject: subject.name,
        workload: workload.name,
        requests: good,
        failed,
        per_second: good as f64 / took.as_secs_f64(),
        cpu_micros: micros.collect(),
    })
}

fn memory(subject: &Subject, samples: &[Sample]) -> anyhow::Result<Memory> {
    let own = samples
        .iter()
        .filter(|sample| sample.subject == subject.name);
    let resident = subject.processes()?.into_iter();
    Ok(Memory {
        subject: subject.name,
        prompts: own.map(|sample| sample.requests).sum(),
        resident_bytes: resident
            .map(|(label, process)| Ok((label, process.resident_bytes()?)))
            .collect::<anyhow::Result<_>>()?,
    })
}
