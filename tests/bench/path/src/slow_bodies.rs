//! `isotherm-bench-slow-bodies`: the latency of usual requests beside bodies that come a byte at a time.
//!
//! A row is one turn of the same load: without slow bodies, then with them, in one run, so other work on the machine affects
//! both alike. A slow client that gets its 408 connects again at once.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Parser;
use isotherm_bench_path::load::{Load, Target};
use isotherm_bench_path::prompts::Prompts;
use isotherm_bench_path::running::RunningVariant;
use isotherm_bench_path::upstream::Upstream;
use isotherm_bench_path::variant::Variant;
use isotherm_bench_path::workload::Workload;
use isotherm_harness::shutdown::run_until_stopped;
use statrs::statistics::{Data, OrderStatistics as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The gap between two bytes of a slow body.
const BYTE_GAP: Duration = Duration::from_secs(1);
/// The announced length of a slow body, which never ends.
const HEAD: &str = "POST /v1/chat/completions HTTP/1.1\r\nhost: llm\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n";
const REPLICAS: usize = 4;

/// Measures how much slow bodies delay the requests of others
#[derive(Parser)]
#[command(
    name = "cargo xtask bench slow-bodies",
    bin_name = "cargo xtask bench slow-bodies"
)]
struct Arguments {
    /// Bodies that are sent at a byte a second
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    bodies: u16,
    /// Usual requests per second
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=20_000))]
    rate: u16,
    /// Pairs of turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,
    /// Length of a turn
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
}

/// The percentiles of a turn in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Percentiles {
    p50: f64,
    p99: f64,
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(run(Arguments::parse())).await
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let upstream = Upstream::start(REPLICAS).await?;
    let python = "python3".as_ref();
    let running = RunningVariant::start(Variant::Isotherm, upstream.addresses(), python).await?;
    let running = running.context("Isotherm does not start")?;
    let target = Target {
        address: running.address,
        workload: Workload::named("4 KB").map_err(anyhow::Error::msg)?,
        prompts: Arc::new(Prompts::default()),
    };
    println!(
        "{} slow bodies, {} requests a second",
        arguments.bodies, arguments.rate
    );
    println!("| round | p50 without | p50 with | p99 without | p99 with | given up |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for round in 1..=arguments.rounds {
        let without = turn(&target, &arguments, round).await?;
        let slow = SlowBodies::start(running.address, arguments.bodies).await?;
        let with = turn(&target, &arguments, round).await?;
        let late = slow.late();
        drop(slow);
        println!(
            "| {round} | {:.2} ms | {:.2} ms | {:.2} ms | {:.2} ms | {late} |",
            without.p50, with.p50, without.p99, with.p99
        );
        rows.push((without, with));
    }
    let median = |of: fn(&(Percentiles, Percentiles)) -> f64| {
        Data::new(rows.iter().map(of).collect::<Vec<_>>()).median()
    };
    println!(
        "| median | {:.2} ms | {:.2} ms | {:.2} ms | {:.2} ms | |",
        median(|row| row.0.p50),
        median(|row| row.1.p50),
        median(|row| row.0.p99),
        median(|row| row.1.p99)
    );
    let change = median(|row| (row.1.p99 / row.0.p99 - 1.0) * 100.0);
    println!("p99 with slow bodies over p99 without, median of the rounds: {change:+.1} %");
    Ok(ExitCode::SUCCESS)
}

/// Sends the usual requests of one turn; the turns of a round have the same arrivals.
async fn turn(target: &Target, arguments: &Arguments, round: u32) -> anyhow::Result<Percentiles> {
    let time = Duration::from_secs(arguments.seconds.into());
    let load = Load::Open(arguments.rate.into(), round.into());
    let tally = target.drive(load, time).await?;
    ensure!(tally.failed == 0, "{} requests failed", tally.failed);
    let mut latency = Data::new(tally.latency_micros);
    Ok(Percentiles {
        p50: latency.percentile(50) / 1_000.0,
        p99: latency.percentile(99) / 1_000.0,
    })
}

/// Clients that send their bodies slowly, until the value is dropped.
struct SlowBodies {
    late: Arc<AtomicU64>,
    _clients: JoinSet<()>,
}

impl SlowBodies {
    async fn start(address: SocketAddr, count: u16) -> anyhow::Result<Self> {
        let late = Arc::new(AtomicU64::new(0));
        let mut clients = JoinSet::new();
        for number in 0..count {
            let stream = begin(address).await?;
            let late = Arc::clone(&late);
            // The bytes of all clients are spread over the gap.
            let delay = BYTE_GAP * u32::from(number) / u32::from(count);
            clients.spawn(async move {
                tokio::time::sleep(delay).await;
                let mut stream = stream;
                loop {
                    trickle(stream).await;
                    late.fetch_add(1, Ordering::Relaxed);
                    match begin(address).await {
                        Ok(next) => stream = next,
                        Err(_) => return, // Envoy is stopping
                    }
                }
            });
        }
        Ok(Self {
            late,
            _clients: clients,
        })
    }

    /// Bodies that Envoy has given up.
    fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }
}

async fn begin(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(HEAD.as_bytes()).await?;
    Ok(stream)
}

/// Sends a byte at a time until Envoy responds or closes the connection.
async fn trickle(mut stream: TcpStream) {
    let mut buffer = [0; 1_024];
    while stream.write_all(b" ").await.is_ok() {
        let read = tokio::time::timeout(BYTE_GAP, stream.read(&mut buffer));
        if read.await.is_ok() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use isotherm_command_interface::check_current;

    use super::*;

    #[test]
    fn xtask_knows_the_command_line() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../xtask/interfaces");
        let file = folder.join("bench-slow-bodies.json");
        check_current(
            &file,
            "cargo xtask bench slow-bodies",
            &Arguments::command(),
        )
        .unwrap();
    }
}
