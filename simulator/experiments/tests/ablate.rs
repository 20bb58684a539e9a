//! The experiment `ablate`, in a process of its own: it changes constants for all that run beside it.

#![allow(clippy::unwrap_used, reason = "a test stops where something is wrong")]

use std::fs;

use isotherm_experiments::registry;
use isotherm_experiments::{Context, Effort};
use isotherm_simulator::Telemetry;

#[test]
fn ablate_changes_constants_and_rules_and_restores_them() {
    let output = std::env::temp_dir().join(format!("isotherm-ablate-{}", std::process::id()));
    let context = || {
        Context::new(Effort {
            quick: true,
            telemetry: Some(Telemetry::Full),
            workloads: vec!["bursty".to_owned()],
            ..Effort::default()
        })
    };
    let experiments = registry::named("ablate").unwrap();
    let runs = || -> (String, Vec<String>) {
        registry::run(&experiments, &context(), &output, None).unwrap();
        let csv = fs::read_to_string(output.join("ablate/data.csv")).unwrap();
        // Later runs read constants that the first one did not.
        let is_rule = |line: &&str| line.contains("rule: ") || line.contains("config: ");
        let rules = csv.lines().filter(is_rule).map(str::to_owned).collect();
        (csv, rules)
    };
    let (csv, rules) = runs();
    let row = |name: &str| {
        let line = csv.lines().find(|line| line.contains(name));
        line.unwrap().to_owned()
    };
    assert!(!row("rule: push blindly").ends_with(",1,1,1"));
    assert!(row("rule: no quarantine").ends_with(",1,1,1"));
    assert_eq!(rules, runs().1, "every constant is restored");
    fs::remove_dir_all(output).unwrap();
}
