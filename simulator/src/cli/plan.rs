//! From the command line to the plan of a comparison. Options that are absent follow from the traffic.

use core::time::Duration;

use anyhow::bail;

use crate::compare::traffic::Traffic;
use crate::compare::{Fleet, Plan};
use crate::workload::catalogue;
use crate::workload::replay::{PlaybackRate, Replay};
use crate::{Change, RegionSetup};
use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;

use super::Cli;

/// Replicas where nothing says how many: in one region, and in each of several.
const REPLICAS: usize = 8;
const REPLICAS_A_REGION: usize = 4;
/// The inverse of the share of a trace that only warms the caches.
const WARMUP_PART: usize = 10;

/// The comparison of a command line.
pub(super) fn plan(cli: &Cli) -> anyhow::Result<Plan> {
    let traffic = traffic(cli)?;
    let fleet = fleet(cli, &traffic)?;
    let mut workload = traffic.workload;
    if let Some(warmup) = cli.warmup {
        workload.warmup_requests = warmup as usize;
    }
    if workload.sends_until.is_none() && workload.warmup_requests >= workload.requests() {
        bail!(
            "there are {} requests, and all of them would only warm the caches; lower --warmup",
            workload.requests()
        );
    }
    Ok(Plan {
        workload,
        fleet,
        policies: match &cli.policies[..] {
            [] => PolicyName::ALL.into(),
            policies => policies.into(),
        },
        push: cli.push,
        slo: Duration::from_secs_f64(cli.slo),
        telemetry: cli.telemetry,
        changes: faults(cli),
        seed: cli.seed,
    })
}

/// Faults of the workload of this name.
fn faults(cli: &Cli) -> Vec<Change> {
    let all = catalogue::all().into_iter();
    let mut named = all.filter(|known| cli.workload.as_deref() == Some(known.name));
    let known = named.next().map(|known| known.scaled(cli.scale));
    known.map_or_else(Vec::new, |known| known.changes)
}

fn traffic(cli: &Cli) -> anyhow::Result<Traffic> {
    let pace = match (cli.rate, cli.speed_up) {
        (Some(rate), _) => PlaybackRate::Rate(rate),
        (None, speed_up) => PlaybackRate::SpeedUp(speed_up.unwrap_or(1.0)),
    };
    let traffic = if let Some(path) = &cli.trace {
        let replay = Replay {
            pace,
            first: cli.first.map(|first| first as usize),
            input_tokens_max: cli.input_cap,
            warmup_requests: 0,
        };
        let mut traffic = Traffic::recorded(path, &replay)?;
        traffic.workload.warmup_requests = traffic.workload.requests() / WARMUP_PART;
        traffic
    } else {
        let name = cli.workload.as_deref().unwrap_or_default();
        Traffic::generated(name, cli.seed, cli.scale, cli.rate)?
    };
    traffic.in_regions(cli.regions.map_or(0, usize::from))
}

fn fleet(cli: &Cli, traffic: &Traffic) -> anyhow::Result<Fleet> {
    // The fleet of the standard workload of this name, or of the first of this kind.
    let known = cli.workload.as_ref().and_then(|name| {
        let kind = format!("{name}-");
        catalogue::all()
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
    let is_kept = |wanted| usize::from(wanted) == regions.len();
    let mut regions = if cli.regions.is_none_or(is_kept) {
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
        bail!(
            "{replicas} replicas for {} regions ({}); every region needs one: raise --replicas, or use --regions 1",
            regions.len(),
            regions.join(", ")
        );
    }
    Ok(Fleet::Equal {
        engine: cli.engine.unwrap_or(engine),
        replicas,
        regions,
    })
}

/// A fleet whose replicas differ: only their engine can be another one, each as fast next to it as before.
fn given(cli: &Cli, mut regions: Vec<RegionSetup>) -> anyhow::Result<Fleet> {
    if cli.regions.is_some() || cli.replicas.is_some() {
        bail!(
            "the replicas of this workload differ, so they can be neither more or fewer nor spread otherwise: leave \
             --replicas and --regions out"
        );
    }
    if let Some(engine) = cli.engine {
        let replicas = regions.iter_mut().flat_map(|region| &mut region.replicas);
        replicas.for_each(|replica| replica.config = engine.config());
    }
    Ok(Fleet::Given(regions))
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use clap::Parser as _;
    use isotherm_router::Push;

    use crate::telemetry::Telemetry;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(core::iter::once("isotherm-sim").chain(line.split_whitespace()))
    }

    fn error(line: &str) -> String {
        match parse(line) {
            Err(error) => error.to_string(),
            Ok(cli) => plan(&cli).unwrap_err().to_string(),
        }
    }

    #[test]
    fn absent_options_follow_from_the_traffic() {
        let plan_of = |line: &str| plan(&parse(&format!("{line} --scale 0.1")).unwrap()).unwrap();
        let l4 = Preset::Llama31_8bL4;
        let a100 = Preset::Llama31_8b2xA100;
        let other = format!("--workload chat-arena --engine {a100}");
        for (line, replicas, regions, wanted) in [
            ("--workload tools", 8, 1, a100),
            ("--workload chat-arena", 12, 3, l4),
            ("--workload tools-high --replicas 3", 3, 1, a100),
            ("--workload tools --regions 2", 8, 2, a100),
            (&other, 12, 3, a100),
        ] {
            let plan = plan_of(line);
            let Fleet::Equal { engine, .. } = plan.fleet else {
                panic!("{line}: the replicas are equal");
            };
            let shape = (plan.fleet.replicas(), plan.fleet.regions().len(), engine);
            assert_eq!(shape, (replicas, regions, wanted), "{line}");
            assert_eq!(plan.policies, PolicyName::ALL, "{line}");
        }
        let own = plan_of("--workload heterogeneous");
        assert!(matches!(own.fleet, Fleet::Given(_)), "its speeds differ");
        let named = plan_of("--workload tools --policies random --push outstanding:7");
        assert_eq!(named.policies, [PolicyName::Random]);
        assert_eq!(named.push, Push::Outstanding { max: 7 });
        assert_eq!(named.telemetry, Telemetry::Full);
        let opaque = plan_of("--workload tools --telemetry opaque");
        assert_eq!(opaque.telemetry, Telemetry::Opaque);
    }

    #[test]
    fn a_wrong_command_line_names_the_valid_values() {
        #[rustfmt::skip]
        let cases = [
            ("", "--trace <FILE>|--workload <NAME>"),
            ("--trace no-such-file.jsonl", "cannot read the trace no-such-file.jsonl"),
            ("--workload chat", "chat-wildchat"),
            ("--workload tools --engine h100", "llama-3.1-8b-l4"),
            ("--workload tools --policies round-robin", "round_robin"),
            ("--workload tools --push outstanding:0", "`outstanding:NUMBER` (from 1)"),
            ("--workload tools --slo 0", "a number above 0"),
            ("--workload tools --telemetry none", "vllm-stock"),
            ("--workload tools --replicas 0", "1..=1024"),
            ("--workload tools --trace x", "cannot be used with"),
            ("--workload tools --first 3", "cannot be used with"),
            ("--workload tot-2 --rate 3", "leave --rate out"),
            ("--workload chat-arena --regions 2", "use --regions 3, or --regions 1"),
            ("--workload heterogeneous --scale 0.1 --regions 2", "leave --replicas and --regions out"),
            ("--workload chat-arena --replicas 2", "every region needs one"),
            ("--workload tools --scale 0.1 --warmup 400", "lower --warmup"),
        ];
        for (line, wanted) in cases {
            let text = error(line);
            assert!(text.contains(wanted), "{line}: {text}");
        }
    }

    #[test]
    fn help_is_no_error() {
        assert_eq!(parse("--help").unwrap_err().kind(), ErrorKind::DisplayHelp);
    }
}
