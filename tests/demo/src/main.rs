//! `isotherm-demo`: the program behind `cargo xtask demo`, `up`, `compare`, `validate` and `soak`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use isotherm_demo::compare::compare;
use isotherm_demo::mesh;
use isotherm_demo::peers::{self, CompareOptions};
use isotherm_demo::regions;
use isotherm_demo::regions::deployment::Deployment;
use isotherm_demo::regions::options::{RegionOptions, Topology};
use isotherm_demo::regions::report::RegionComparison;
use isotherm_demo::scenario::{DemoOptions, UpOptions};
use isotherm_demo::soak::{SoakOptions, soak};
use isotherm_demo::tiers;
use isotherm_demo::up;
use isotherm_demo::validate::{ValidateOptions, validate};
use isotherm_harness::shutdown::{run_until_stopped, stop_signal};
use isotherm_harness::{MeshGateway, Tools};
use isotherm_report::{Format, Report};

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
        options: DemoOptions,
        #[command(flatten)]
        regions: RegionOptions,
        /// Plays the workload also on a gateway that a real control plane configures: envoy-gateway, ai-gateway, istio
        /// (with an InferencePool), istio-service, inference-pool (Istio without the filter). Several with commas
        #[arg(long, value_name = "GATEWAY", value_delimiter = ',', value_parser = mesh::gateway, conflicts_with_all = ["regions", "picture"])]
        mesh: Vec<MeshGateway>,
        /// Plays interactive and batch clients at once, then a tenant that bursts, and checks what tiers and bounds of tenants promise
        #[arg(long, conflicts_with_all = ["regions", "mesh", "picture", "trace", "requests", "policy", "push"])]
        tiers: bool,
        /// Also writes the charts as one SVG picture
        #[arg(long, value_name = "FILE", conflicts_with = "regions")]
        picture: Option<PathBuf>,
        #[command(flatten)]
        files: ReportFiles,
    },
    /// Replays one trace through the real system and through the simulator, and reports their deviation
    Validate {
        #[command(flatten)]
        options: ValidateOptions,
        #[command(flatten)]
        files: ReportFiles,
    },
    /// Plays one trace through Isotherm and through other projects' routers, to the same simulated engines
    Compare {
        #[command(flatten)]
        options: CompareOptions,
        #[command(flatten)]
        files: ReportFiles,
    },
    /// Loads the system while processes and networks fail, and checks the invariants that must hold
    Soak {
        #[command(flatten)]
        options: SoakOptions,
        #[command(flatten)]
        files: ReportFiles,
    },
    /// Starts the system, prints how to use it, and runs it until Ctrl-C
    Up {
        #[command(flatten)]
        options: UpOptions,
        #[command(flatten)]
        topology: Topology,
    },
}

/// The files of a report.
#[derive(clap::Args)]
struct ReportFiles {
    /// Directory of the report [default: target/demo, target/tiers, target/validation, target/compare or target/soak]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Also writes the report as a page of Markdown with its tables as CSV files beside it, for docs/results
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl ReportFiles {
    /// The directory of the report.
    fn output(&self, default: &str) -> anyhow::Result<PathBuf> {
        match &self.output {
            Some(output) => Ok(output.clone()),
            None => Ok(Tools::find()?.output.join(default)),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    run_until_stopped(run(Arguments::parse().mode)).await
}

async fn run(mode: Mode) -> anyhow::Result<ExitCode> {
    match mode {
        Mode::Demo {
            options,
            tiers: true,
            files,
            ..
        } => {
            let comparison = tiers::compare(&options).await?;
            publish(&comparison.report()?, files, "tiers")?;
            Ok(exit_code(comparison.holds()))
        }
        Mode::Demo {
            options,
            regions,
            mesh,
            picture,
            files,
            ..
        } => {
            let (report, failed) = match regions.topology.regions {
                Some(_) => demo_of_regions(&options, &regions).await?,
                None if !mesh.is_empty() => demo_of_meshes(&options, &mesh).await?,
                None => demo(&options, picture.as_deref()).await?,
            };
            publish(&report, files, "demo")?;
            Ok(exit_code(failed == 0))
        }
        Mode::Validate { options, files } => {
            let validation = validate(&options).await?;
            publish(&validation.report()?, files, "validation")?;
            Ok(exit_code(validation.holds()))
        }
        Mode::Compare { options, files } => {
            let comparison = peers::compare(&options).await?;
            publish(&comparison.report()?, files, "compare")?;
            Ok(exit_code(comparison.holds()))
        }
        Mode::Soak { options, mut files } => {
            let result = soak(&options).await?;
            let output = files.output("soak")?;
            let markdown = files.markdown.take();
            files.markdown = markdown.or_else(|| Some(output.join("report.md")));
            publish(&result.report()?, files, "soak")?;
            Ok(exit_code(result.holds()))
        }
        Mode::Up { options, topology } => match topology.regions {
            Some(_) => up_with_regions(&options, &topology).await,
            None => up(&options).await,
        },
    }
}

/// Prints the report, and writes its files.
fn publish(report: &Report, files: ReportFiles, default: &str) -> anyhow::Result<()> {
    let output = files.output(default)?;
    println!("\n{}", report.text());
    let formats = [("report.json", Format::Json), ("report.html", Format::Html)];
    for path in report.write(&output, formats)? {
        println!("{}", path.display());
    }
    let pages = files.markdown.map(|path| report.write_page(&path));
    for path in pages.transpose()?.into_iter().flatten() {
        println!("{}", path.display());
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

fn exit_code(is_success: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_success))
}

async fn up(options: &UpOptions) -> anyhow::Result<ExitCode> {
    let stack = up::start(options).await?;
    println!("{}", up::instructions(&stack));
    stop_signal().await?;
    Ok(ExitCode::SUCCESS)
}

async fn up_with_regions(options: &UpOptions, topology: &Topology) -> anyhow::Result<ExitCode> {
    let replicas = usize::from(options.replicas.replicas);
    let plan = topology.forwarding(replicas, options.speedup, options.scheme());
    let deployment = Deployment::start(&plan).await?;
    let regions = deployment
        .regions
        .as_ref()
        .context("regions that forward")?;
    println!("{}", regions::up::instructions(regions, &plan)?);
    stop_signal().await?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the report, and the number of failed requests.
async fn demo(options: &DemoOptions, picture: Option<&Path>) -> anyhow::Result<(Report, usize)> {
    let scenario = options.scenario()?;
    let summary = &scenario.summary;
    eprintln!("{}: {}", summary.name, summary.description);
    let comparison = compare(&scenario, &options.schemes()).await?;
    if let Some(path) = picture {
        write(path, &comparison.picture()?)?;
    }
    let failed = comparison.runs.iter().map(|run| run.metrics.failed).sum();
    Ok((comparison.report()?, failed))
}

/// Returns the report, and the number of failed requests and of expectations that do not hold.
async fn demo_of_meshes(
    options: &DemoOptions,
    gateways: &[MeshGateway],
) -> anyhow::Result<(Report, usize)> {
    let scenario = options.scenario()?;
    let summary = &scenario.summary;
    eprintln!("{}: {}", summary.name, summary.description);
    let comparison = mesh::compare(&scenario, &options.schemes_of_meshes(), gateways).await?;
    Ok((comparison.report()?, comparison.failed()))
}

async fn demo_of_regions(
    options: &DemoOptions,
    region_options: &RegionOptions,
) -> anyhow::Result<(Report, usize)> {
    let plan = region_options.topology.forwarding(
        usize::from(options.replicas.replicas),
        options.speedup,
        options.scheme_of_regions()?,
    );
    let mut trials = Vec::new();
    for trial in region_options.trials(&plan, options.seed) {
        trials.push(regions::compare::compare(&trial).await?);
    }
    let outage = if region_options.has_outage() {
        regions::outage::run(&plan, options.seed).await?
    } else {
        None
    };
    let comparison = RegionComparison {
        setup: region_options.setup(&plan, options.seed),
        trials,
        outage,
    };
    Ok((comparison.report()?, comparison.failed()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use isotherm_command_interface::check_current;

    use super::*;

    fn parse(line: &str) -> Result<Mode, clap::Error> {
        let words = std::iter::once("xtask").chain(line.split_whitespace());
        Arguments::try_parse_from(words).map(|arguments| arguments.mode)
    }

    #[test]
    fn options_that_regions_cannot_use_are_errors() {
        for line in [
            "demo --regions 3 --trace my.jsonl",
            "demo --regions 3 --requests 10",
            "demo --clients day",
            "demo --mesh istio --regions 3",
            "demo --tiers --regions 3",
            "demo --tiers --policy random",
            "up --round-trip-ms 80",
            "up --policy isotherm --policy random",
        ] {
            let error = parse(line).err().map(|error| error.to_string());
            let text = error.unwrap_or_else(|| format!("{line} is accepted"));
            assert!(
                text.contains("cannot be used") || text.contains("required"),
                "{text}"
            );
        }
        let Ok(Mode::Demo { options, .. }) = parse("demo --regions 3 --policy random,isotherm")
        else {
            panic!("not a demo");
        };
        let error = options.scheme_of_regions().unwrap_err().to_string();
        assert!(error.contains("name one with --policy"), "{error}");
    }

    #[test]
    fn gateways_are_named_once_or_several_times() {
        let Ok(Mode::Demo { mesh, options, .. }) =
            parse("demo --mesh envoy-gateway,istio --mesh inference-pool")
        else {
            panic!("not a demo");
        };
        let names: Vec<_> = mesh.into_iter().map(MeshGateway::name).collect();
        assert_eq!(names, ["envoy-gateway", "istio", "inference-pool"]);
        assert_eq!(options.schemes_of_meshes().len(), 1);
        let error = parse("demo --mesh linkerd")
            .err()
            .map(|error| error.to_string());
        assert!(error.unwrap_or_default().contains("istio-service"));
    }

    #[test]
    fn regions_run_the_requested_policy() {
        for (line, label) in [
            ("demo --regions 3", "isotherm / pending"),
            (
                "demo --regions 3 --policy prefix_tree",
                "prefix_tree / pending",
            ),
            (
                "demo --regions 3 --policy isotherm --push blind",
                "isotherm / blind",
            ),
        ] {
            let Ok(Mode::Demo { options, .. }) = parse(line) else {
                panic!("{line} is not a demo");
            };
            assert_eq!(options.scheme_of_regions().unwrap().label(), label);
        }
        let Ok(Mode::Up { options, .. }) = parse("up --regions 3 --policy round_robin") else {
            panic!("not up");
        };
        assert_eq!(options.scheme().label(), "round_robin / blind");
    }

    #[test]
    fn xtask_knows_the_command_line() {
        let command = Arguments::command();
        for mode in ["demo", "up", "validate", "compare", "soak"] {
            let of_mode = command.find_subcommand(mode).unwrap();
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/interfaces");
            let file = folder.join(mode).with_extension("json");
            check_current(&file, &format!("cargo xtask {mode}"), of_mode).unwrap();
        }
    }
}
