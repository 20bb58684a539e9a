//! The alerts: when they fire, and what their documents say to do.
//!
//! `promtool` tests them over time, where it is there: Debian's package `prometheus` has it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_router::Availability;
use promql_parser::parser::parse;

use crate::monitoring::{ALERTS, alerts, read, rules};
use crate::promql::{self, Sample};

/// The page with a section for each alert.
const RUNBOOK: &str = "docs/alerts.md";

/// The alerts that fire over the pages of these services, each by its own address.
fn firing(pages: &[&str]) -> Vec<String> {
    let samples: Vec<Sample> = (0..)
        .zip(pages)
        .flat_map(|(n, page)| promql::scraped(page, &format!("10.0.0.{n}:9091")))
        .collect();
    let rules = alerts()
        .into_iter()
        .filter(|(name, _)| name == "IsothermNoReplicaAvailable");
    let fires = |(_, expression): &(String, String)| {
        !promql::evaluate(&parse(expression).unwrap(), &samples).is_empty()
    };
    rules.filter(fires).map(|(name, _)| name).collect()
}

/// A page of a service with a pool of one queued request, whose replicas are in these states.
fn queued(states: &[Availability]) -> String {
    let replica = |(n, state): (usize, &Availability)| {
        let value = u8::from(*state == Availability::Available);
        format!(
            "isotherm_replica_available{{pool=\"llama\",replica=\"10.0.1.{n}:8000\",role=\"both\",state=\"{}\"}} {value}\n",
            state.as_ref()
        )
    };
    let replicas: String = states.iter().enumerate().map(replica).collect();
    format!(
        "isotherm_available_replicas{{pool=\"llama\"}} 0\nisotherm_queue_length{{pool=\"llama\"}} 1\n{replicas}"
    )
}

#[test]
fn a_queue_behind_busy_replicas_raises_no_page() {
    use Availability::{Available, Failing, Full, Hung, NoHeadroom, Pending};
    for states in [
        &[Pending, NoHeadroom, Full][..],
        // A request may wait for a replica although another accepts one.
        &[Available, Pending],
        &[Failing, Hung, Pending],
    ] {
        assert_eq!(firing(&[&queued(states)]), [""; 0], "{states:?}");
    }
}

#[test]
fn a_queue_that_no_replica_serves_raises_a_page() {
    use Availability::{Draining, Failing, Hung, NeverProbed, ProbeFailed, Stale};
    for states in [
        &[][..],
        &[Failing, Hung],
        &[NeverProbed, ProbeFailed, Stale],
        &[Draining],
    ] {
        assert_eq!(
            firing(&[&queued(states)]),
            ["IsothermNoReplicaAvailable"],
            "{states:?}"
        );
    }
}

/// The section of the runbook under a heading.
fn section<'a>(runbook: &'a str, heading: &str) -> Option<&'a str> {
    let start = format!("\n## {heading}\n");
    let (_, rest) = runbook.split_once(&start)?;
    rest.split("\n## ").next()
}

#[test]
fn every_alert_has_a_section_with_three_commands() {
    let runbook = read(RUNBOOK);
    for rule in rules(ALERTS) {
        let name = rule["alert"].as_str().unwrap();
        let section = section(&runbook, name).unwrap_or_else(|| panic!("no section {name}"));
        let url = format!("{RUNBOOK}#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], url.as_str(), "{name}");
        // An end-to-end test runs them.
        let commands = section.split("```sh\n").nth(1).unwrap_or_default();
        let commands = commands.split("```").next().unwrap_or_default();
        assert_eq!(commands.lines().count(), 3, "{name}: {commands}");
        let begin = match rule["labels"]["severity"].as_str() {
            Some("critical") => "Page.",
            Some("warning") => "Warning.",
            other => panic!("{name}: {other:?}"),
        };
        assert!(section.trim_start().starts_with(begin), "{name}: {section}");
        for part in ["**Impact:**", "**Remedy:**", "**Escalate**"] {
            assert!(section.contains(part), "{name}: no {part}");
        }
    }
    let sections = runbook
        .lines()
        .filter(|line| line.starts_with("## Isotherm"));
    assert_eq!(sections.count(), rules(ALERTS).len());
}

#[test]
fn every_aggregation_of_an_alert_keeps_the_namespace_and_the_job() {
    for (name, expression) in alerts() {
        for part in expression.split("by (").skip(1) {
            assert!(part.starts_with("namespace, job"), "{name}: by ({part}");
        }
    }
}

#[test]
fn the_alerts_fire_in_the_cases_of_promtool_and_in_no_other() {
    let program = std::env::var_os("ISOTHERM_MESH_TOOLS")
        .map(|folder| PathBuf::from(folder).join("promtool"))
        .filter(|program| program.exists())
        .unwrap_or_else(|| "promtool".into());
    let root: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(program)
        .args(["test", "rules", "ext-proc/tests/data/alerts-test.yaml"])
        .current_dir(root)
        .output();
    match output {
        Ok(output) => {
            let failures = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{failures}");
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: no promtool; Debian's package `prometheus` has it");
        }
        Err(error) => panic!("promtool: {error}"),
    }
}
