//! `isotherm-demo`: what `cargo xtask demo` and `cargo xtask up` run once everything is built.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use isotherm_harness::{EngineOptions, Pool, Tools};
use isotherm_load::compare::{compare, start};
use isotherm_load::regions;
use isotherm_load::regions::options::{RegionOptions, Topology};
use isotherm_load::regions::report::Report;
use isotherm_load::regions::world::World;
use isotherm_load::scenario::{FleetOptions, MODEL, Options, speedup};
use isotherm_load::{up, validate};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    mode: Mode,
}

/// Isotherm on this machine: simulated engines, the service and a real Envoy.
#[derive(Subcommand)]
enum Mode {
    /// Compares policies on one workload, and writes a report
    Demo {
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        regions: RegionOptions,
        /// Where the report goes, instead of target/demo
        #[arg(long, value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
    /// Plays one trace through the real system and through the simulator, and says how far they are apart
    Validate {
        #[command(flatten)]
        options: validate::Options,
        /// Where the report goes, instead of target/validation
        #[arg(long, value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
    /// Leaves it running until Ctrl-C, and says how to talk to it
    Up {
        #[command(flatten)]
        fleet: FleetOptions,
        #[command(flatten)]
        topology: Topology,
        /// How many times faster than life the engines answer
        #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speedup)]
        speedup: f64,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let mode = Arguments::parse().mode;
    // Whatever ends this, the stack is dropped and takes its processes with it.
    let done = tokio::select! {
        done = run(mode) => done,
        stopped = interrupted() => stopped.map(|()| ExitCode::from(130)),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(mode: Mode) -> anyhow::Result<ExitCode> {
    match mode {
        Mode::Demo {
            options,
            regions,
            output,
        } => {
            let output = match output {
                Some(output) => output,
                None => Tools::find()?.output.join("demo"),
            };
            match regions.topology.regions {
                Some(_) => demo_of_regions(&options, &regions, &output).await,
                None => demo(&options, &output).await,
            }
        }
        Mode::Validate { options, output } => {
            let output = match output {
                Some(output) => output,
                None => Tools::find()?.output.join("validation"),
            };
            validated(&options, &output).await
        }
        Mode::Up {
            fleet,
            topology,
            speedup,
        } => match topology.regions {
            Some(_) => up_of_regions(&fleet, &topology, speedup).await,
            None => up(&fleet, speedup).await,
        },
    }
}

async fn up(fleet: &FleetOptions, speed: f64) -> anyhow::Result<ExitCode> {
    let scheme = fleet.schemes().first().copied().context("no policy")?;
    let engine = EngineOptions {
        speed,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL)
        .replicas(usize::from(fleet.replicas))
        .engine(engine);
    let stack = start("up", pool, speed, scheme).await?;
    println!("{}", up::instructions(&stack));
    interrupted().await?;
    Ok(ExitCode::SUCCESS)
}

async fn up_of_regions(
    fleet: &FleetOptions,
    topology: &Topology,
    speed: f64,
) -> anyhow::Result<ExitCode> {
    let plan = topology.forwarding(usize::from(fleet.replicas), speed);
    let world = World::start(&plan).await?;
    let regions = world.regions().context("regions that forward")?;
    println!("{}", regions::up::instructions(regions, &plan)?);
    interrupted().await?;
    Ok(ExitCode::SUCCESS)
}

async fn demo(options: &Options, output: &Path) -> anyhow::Result<ExitCode> {
    let scenario = options.scenario()?;
    eprintln!(
        "{}: {}",
        scenario.described.name, scenario.described.description
    );
    let report = compare(&scenario, &options.fleet.schemes()).await?;
    let paths = report.write(output)?;

    println!("\n{}", report.table());
    if let Some(verdict) = report.verdict() {
        println!("{verdict}\n");
    }
    for path in paths {
        println!("{}", path.display());
    }
    Ok(code(report.runs.iter().map(|run| run.failed).sum()))
}

async fn validated(options: &validate::Options, output: &Path) -> anyhow::Result<ExitCode> {
    let report = validate::validate(options).await?;
    let paths = validate::write(&report, output)?;
    println!("\n{}", report.text());
    for path in paths {
        println!("{}", path.display());
    }
    Ok(if report.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn demo_of_regions(
    options: &Options,
    asked: &RegionOptions,
    output: &Path,
) -> anyhow::Result<ExitCode> {
    let replicas = usize::from(options.fleet.replicas);
    let mut trials = Vec::new();
    for trial in asked.trials(replicas, options.speedup, options.seed) {
        trials.push(regions::compare::compare(&trial).await?);
    }
    let report = Report::new(asked.setup(options.speedup, options.seed), trials);
    let paths = report.write(output)?;
    println!("\n{}", report.text());
    for path in paths {
        println!("{}", path.display());
    }
    Ok(code(report.failed()))
}

/// Failed requests are a failure of the demo.
fn code(failed: usize) -> ExitCode {
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Ctrl-C, or a polite `kill`.
async fn interrupted() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => Ok(pressed?),
        _ = terminate.recv() => Ok(()),
    }
}
