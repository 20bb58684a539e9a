//! `isotherm-demo`: what `cargo xtask demo` and `cargo xtask up` run once everything is built.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use isotherm_demo::compare::compare;
use isotherm_demo::regions;
use isotherm_demo::regions::options::{RegionOptions, Topology};
use isotherm_demo::regions::report::Report;
use isotherm_demo::regions::world::World;
use isotherm_demo::scenario::{Options, UpOptions};
use isotherm_demo::{up, validate};
use isotherm_harness::Tools;
use isotherm_harness::shutdown::{run_until_stopped, stop_signal};

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
        options: UpOptions,
        #[command(flatten)]
        topology: Topology,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(run(Arguments::parse().mode)).await
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
        Mode::Up { options, topology } => match topology.regions {
            Some(_) => up_of_regions(&options, &topology).await,
            None => up(&options).await,
        },
    }
}

async fn up(options: &UpOptions) -> anyhow::Result<ExitCode> {
    let stack = up::start(options).await?;
    println!("{}", up::instructions(&stack));
    stop_signal().await?;
    Ok(ExitCode::SUCCESS)
}

async fn up_of_regions(options: &UpOptions, topology: &Topology) -> anyhow::Result<ExitCode> {
    let replicas = usize::from(options.fleet.replicas);
    let plan = topology.forwarding(replicas, options.speedup, options.scheme());
    let world = World::start(&plan).await?;
    let regions = world.regions().context("regions that forward")?;
    println!("{}", regions::up::instructions(regions, &plan)?);
    stop_signal().await?;
    Ok(ExitCode::SUCCESS)
}

async fn demo(options: &Options, output: &Path) -> anyhow::Result<ExitCode> {
    let scenario = options.scenario()?;
    eprintln!(
        "{}: {}",
        scenario.described.name, scenario.described.description
    );
    let report = compare(&scenario, &options.schemes()).await?;
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
    let plan = asked.topology.forwarding(
        usize::from(options.fleet.replicas),
        options.speedup.unwrap_or(regions::options::SPEEDUP),
        options.scheme_of_regions()?,
    );
    let mut trials = Vec::new();
    for trial in asked.trials(&plan, options.seed) {
        trials.push(regions::compare::compare(&trial).await?);
    }
    let report = Report::new(asked.setup(&plan, options.seed), trials);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Mode, clap::Error> {
        let words = std::iter::once("xtask").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map(|arguments| arguments.mode)
    }

    #[test]
    fn what_regions_cannot_use_is_an_error() {
        for line in [
            "demo --regions 3 --trace my.jsonl",
            "demo --regions 3 --requests 10",
            "demo --clients day",
            "up --round-trip-ms 80",
            "up --policy isotherm --policy random",
        ] {
            let error = parse(line).err().map(|error| error.to_string());
            let text = error.unwrap_or_else(|| format!("{line} is taken"));
            assert!(
                text.contains("cannot be used") || text.contains("required"),
                "{text}"
            );
        }
        let Ok(Mode::Demo { options, .. }) = parse("demo --regions 3 --policy random,isotherm")
        else {
            panic!("it is a demo");
        };
        let error = options.scheme_of_regions().unwrap_err().to_string();
        assert!(error.contains("name one with --policy"), "{error}");
    }

    #[test]
    fn regions_run_the_policy_that_is_asked_for() {
        for (line, label) in [
            ("demo --regions 3", "prefix_tree / pending"),
            ("demo --regions 3 --policy isotherm", "isotherm / pending"),
            (
                "demo --regions 3 --policy isotherm --push blind",
                "isotherm / blind",
            ),
        ] {
            let Ok(Mode::Demo { options, .. }) = parse(line) else {
                panic!("{line} is a demo");
            };
            assert_eq!(options.scheme_of_regions().unwrap().label(), label);
        }
        let Ok(Mode::Up { options, .. }) = parse("up --regions 3 --policy round_robin") else {
            panic!("it is up");
        };
        assert_eq!(options.scheme().label(), "round_robin / blind");
    }
}
