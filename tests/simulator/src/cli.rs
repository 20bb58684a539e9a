//! The command line: which policy for one's own traffic, on one's own fleet.

use core::time::Duration;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use isotherm_engine::model::Preset;
use isotherm_router::{PolicyName, Push};
use isotherm_simulator::RegionSetup;
use isotherm_simulator::compare::traffic::Traffic;
use isotherm_simulator::compare::{BASELINE, Fleet, Plan, Report, Who};
use isotherm_simulator::workload::replay::{Pace, Replay};
use isotherm_simulator::workload::standard;

/// Compares routing policies on your own traffic, in virtual time, and says which to use and what it would save.
///
/// The policies are the service's own code, the replicas a model of an engine fitted to published measurements. A trace is one
/// JSON object a line, as `isotherm record` writes them, or Mooncake's.
#[derive(Debug, Parser)]
#[command(name = "isotherm-sim", version)]
struct Cli {
    /// Recorded traffic.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "workload",
        conflicts_with = "workload"
    )]
    trace: Option<PathBuf>,
    /// Generated traffic instead, by its name; a wrong one lists them.
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// How many replicas, over all regions. [default: 8, in several regions 4 for each; a generated workload's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    replicas: Option<u16>,
    /// What they run on; a wrong name lists all. [default: llama-3.1-8b-l4; a generated workload's own]
    #[arg(long, value_name = "NAME")]
    engine: Option<Preset>,
    /// In how many regions. [default: as many as the traffic comes from]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    regions: Option<u16>,
    /// Which policies, with commas between them. [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<PolicyName>,
    /// When a replica may be sent another request: `pending`, `outstanding:N` or `blind`.
    #[arg(long, value_name = "MODE", default_value = "pending", value_parser = push)]
    push: Push,
    /// Within how many seconds a first token is wanted.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    slo: f64,
    /// Play it at so many requests a second on average.
    #[arg(long, value_name = "PER_SECOND", value_parser = positive, conflicts_with = "speed_up")]
    rate: Option<f64>,
    /// Play a trace so many times as fast.
    #[arg(long, value_name = "TIMES", value_parser = positive, conflicts_with = "workload")]
    speed_up: Option<f64>,
    /// Only so many requests, from the start of a trace.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "workload")]
    first: Option<u32>,
    /// Cut longer prompts of a trace, tokens.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "workload")]
    input_cap: Option<u32>,
    /// So many requests only warm the caches, and are not counted. [default: a tenth of a trace; a workload's own]
    #[arg(long, value_name = "N")]
    warmup: Option<u32>,
    /// So many times as long as a generated workload usually is.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = positive, conflicts_with = "trace")]
    scale: f64,
    /// What everything random follows from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Replicas where nothing says how many: in one region, and in each of several.
const REPLICAS: usize = 8;
const REPLICAS_A_REGION: usize = 4;
/// Of a trace, this part only warms the caches.
const WARMUP_PART: usize = 10;

/// Reads the command line and does what it says.
pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    match plan(&cli).and_then(|plan| compare(&plan, cli.json)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprintln!("isotherm-sim: {text}");
            ExitCode::FAILURE
        }
    }
}

/// Runs everything; what is going on goes to the standard error.
fn compare(plan: &Plan, json: bool) -> Result<String, String> {
    eprintln!(
        "{}: {} requests, {} of them to warm up; {}",
        plan.workload.name,
        plan.workload.requests(),
        plan.workload.warmup_requests,
        plan.fleet.describe(),
    );
    note_long_requests(plan);
    let comparison = plan.compare(|who| eprintln!("  {}", who.as_str()));
    let baseline = comparison.of(Who::Policy(BASELINE));
    let saving = comparison.best.zip(baseline).and_then(|(best, baseline)| {
        let summary = comparison.of(Who::Policy(best))?;
        plan.saving(best, summary, baseline)
    });
    let report = Report {
        plan,
        comparison: &comparison,
        saving: saving.as_ref(),
    };
    if json {
        report.json().map_err(|error| error.to_string())
    } else {
        Ok(format!("\n{}", report.text()))
    }
}

/// What an engine cannot hold fails under every policy, so it says nothing about them.
fn note_long_requests(plan: &Plan) {
    let most = plan.fleet.request_tokens_max();
    let steps = plan
        .workload
        .sessions
        .iter()
        .flat_map(|session| &session.steps);
    let long = steps
        .filter(|step| step.prompt.tokens().saturating_add(step.output_tokens) > most)
        .count();
    if long > 0 {
        eprintln!(
            "note: {long} requests are longer than the {most} tokens that this engine holds, and will fail; choose another \
             --engine, or cut a trace's prompts with --input-cap"
        );
    }
}

fn plan(cli: &Cli) -> Result<Plan, String> {
    let traffic = traffic(cli)?;
    let fleet = fleet(cli, &traffic)?;
    let mut workload = traffic.workload;
    if let Some(warmup) = cli.warmup {
        workload.warmup_requests = warmup as usize;
    }
    if workload.sends_until.is_none() && workload.warmup_requests >= workload.requests() {
        return Err(format!(
            "there are {} requests, and all of them would only warm the caches; lower --warmup",
            workload.requests()
        ));
    }
    Ok(Plan {
        workload,
        fleet,
        policies: if cli.policies.is_empty() {
            PolicyName::ALL.into()
        } else {
            cli.policies.clone()
        },
        push: cli.push,
        slo: Duration::from_secs_f64(cli.slo),
        seed: cli.seed,
    })
}

fn traffic(cli: &Cli) -> Result<Traffic, String> {
    let pace = match (cli.rate, cli.speed_up) {
        (Some(rate), _) => Pace::Rate(rate),
        (None, speed_up) => Pace::SpeedUp(speed_up.unwrap_or(1.0)),
    };
    let traffic = if let Some(path) = &cli.trace {
        let replay = Replay {
            pace,
            first: cli.first.map(|first| first as usize),
            input_tokens_max: cli.input_cap,
            warmup_requests: 0,
        };
        Traffic::recorded(path, &replay).map(|mut traffic| {
            traffic.workload.warmup_requests = traffic.workload.requests() / WARMUP_PART;
            traffic
        })
    } else {
        let name = cli.workload.as_deref().unwrap_or_default();
        Traffic::generated(name, cli.seed, cli.scale, cli.rate)
    };
    let wanted = cli.regions.map_or(0, usize::from);
    traffic
        .and_then(|traffic| traffic.in_regions(wanted))
        .map_err(|error| error.to_string())
}

fn fleet(cli: &Cli, traffic: &Traffic) -> Result<Fleet, String> {
    // The fleet of the standard workload of this name, or of the first of this kind.
    let known = cli.workload.as_ref().and_then(|name| {
        let kind = format!("{name}-");
        standard()
            .into_iter()
            .find(|standard| standard.name == name || standard.name.starts_with(&kind))
    });
    let own = known.map(|standard| standard.fleet());
    let (engine, replicas, regions) = match own {
        Some(Fleet::Given(regions)) => return given(cli, regions),
        Some(Fleet::Equal {
            engine,
            replicas,
            regions,
        }) => (engine, Some(replicas), regions),
        None => (Preset::Llama31_8bL4, None, traffic.regions.clone()),
    };
    let kept = cli
        .regions
        .is_none_or(|wanted| usize::from(wanted) == regions.len());
    let mut regions = if kept {
        regions
    } else {
        traffic.regions.clone()
    };
    if regions.is_empty() {
        regions.push("one".to_owned());
    }
    let default = replicas.unwrap_or(match regions.len() {
        0 | 1 => REPLICAS,
        several => several * REPLICAS_A_REGION,
    });
    let replicas = cli.replicas.map_or(default, usize::from);
    if replicas < regions.len() {
        return Err(format!(
            "{replicas} replicas for {} regions ({}); every region needs one: raise --replicas, or use --regions 1",
            regions.len(),
            regions.join(", ")
        ));
    }
    Ok(Fleet::Equal {
        engine: cli.engine.unwrap_or(engine),
        replicas,
        regions,
    })
}

/// A fleet whose replicas differ: only their engine can be another one, each as fast next to it as before.
fn given(cli: &Cli, mut regions: Vec<RegionSetup>) -> Result<Fleet, String> {
    if cli.regions.is_some() || cli.replicas.is_some() {
        return Err(
            "the replicas of this workload differ, so they can be neither more or fewer nor spread otherwise: leave \
             --replicas and --regions out"
                .to_owned(),
        );
    }
    if let Some(engine) = cli.engine {
        let replicas = regions.iter_mut().flat_map(|region| &mut region.replicas);
        replicas.for_each(|replica| replica.config = engine.config());
    }
    Ok(Fleet::Given(regions))
}

fn push(text: &str) -> Result<Push, String> {
    let wrong = || format!("\"{text}\" is none of pending, outstanding:N (N from 1) and blind");
    match text.split_once(':') {
        None if text == "pending" => Ok(Push::Pending),
        None if text == "blind" => Ok(Push::Blind),
        Some(("outstanding", number)) => match number.parse() {
            Ok(max) if max > 0 => Ok(Push::Outstanding { max }),
            Ok(_) | Err(_) => Err(wrong()),
        },
        None | Some(_) => Err(wrong()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 && value <= 1e6 => Ok(value),
        Ok(_) | Err(_) => Err("a number above 0, at most a million, is wanted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(core::iter::once("isotherm-sim").chain(line.split_whitespace()))
    }

    fn error(line: &str) -> String {
        match parse(line) {
            Err(error) => error.to_string(),
            Ok(cli) => plan(&cli).unwrap_err(),
        }
    }

    #[test]
    fn what_is_not_said_follows_from_the_traffic() {
        let plan_of = |line: &str| plan(&parse(line).unwrap()).unwrap();
        let tools = plan_of("--workload tools --scale 0.1");
        assert_eq!(
            (tools.fleet.replicas(), tools.fleet.regions().len()),
            (8, 1)
        );
        assert_eq!(tools.policies, PolicyName::ALL);
        let chat = plan_of("--workload chat-arena --scale 0.1");
        assert_eq!((chat.fleet.replicas(), chat.fleet.regions().len()), (12, 3));
        let own = plan_of("--workload heterogeneous --scale 0.1");
        assert!(matches!(own.fleet, Fleet::Given(_)), "its speeds differ");
        let fewer = plan_of(
            "--workload tools-high --scale 0.1 --replicas 3 --policies random --push outstanding:7",
        );
        let engine_of = |plan: &Plan| match &plan.fleet {
            Fleet::Equal { engine, .. } => *engine,
            Fleet::Given(_) => panic!("its replicas are equal"),
        };
        assert_eq!(
            (fewer.fleet.replicas(), engine_of(&fewer)),
            (3, Preset::Llama31_8b2xA100)
        );
        let spread = plan_of("--workload tools --scale 0.1 --regions 2");
        assert_eq!(
            (
                spread.fleet.replicas(),
                spread.fleet.regions().len(),
                engine_of(&spread)
            ),
            (8, 2, Preset::Llama31_8b2xA100)
        );
        let other = plan_of(&format!(
            "--workload chat-arena --scale 0.1 --engine {}",
            Preset::Llama31_8b2xA100
        ));
        assert_eq!(
            (
                other.fleet.replicas(),
                other.fleet.regions().len(),
                engine_of(&other)
            ),
            (12, 3, Preset::Llama31_8b2xA100)
        );
        assert_eq!(
            (fewer.policies, fewer.push),
            (vec![PolicyName::Random], Push::Outstanding { max: 7 })
        );
    }

    #[test]
    fn a_wrong_command_line_says_what_would_be_right() {
        for (line, wanted) in [
            ("", "--trace <FILE>"),
            (
                "--trace no-such-file.jsonl",
                "cannot read the trace no-such-file.jsonl",
            ),
            ("--workload chat", "chat-wildchat"),
            ("--workload tools --engine h100", "llama-3.1-8b-l4"),
            ("--workload tools --policies round-robin", "round_robin"),
            (
                "--workload tools --push outstanding:0",
                "outstanding:N (N from 1)",
            ),
            ("--workload tools --slo 0", "a number above 0"),
            ("--workload tools --replicas 0", "1..=1024"),
            ("--workload tools --trace x", "cannot be used with"),
            ("--workload tools --first 3", "cannot be used with"),
            ("--workload tot-2 --rate 3", "leave --rate out"),
            (
                "--workload chat-arena --regions 2",
                "use --regions 3, or --regions 1",
            ),
            (
                "--workload heterogeneous --scale 0.1 --regions 2",
                "leave --replicas and --regions out",
            ),
            (
                "--workload chat-arena --replicas 2",
                "every region needs one",
            ),
            (
                "--workload tools --scale 0.1 --warmup 400",
                "lower --warmup",
            ),
        ] {
            let text = error(line);
            assert!(text.contains(wanted), "{line}: {text}");
        }
    }

    #[test]
    fn help_is_no_error() {
        assert_eq!(parse("--help").unwrap_err().kind(), ErrorKind::DisplayHelp);
    }
}
