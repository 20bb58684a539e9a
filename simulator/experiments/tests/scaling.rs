//! Scaling experiments end to end in their quick form, on synthetic twins.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops where something is wrong"
)]

use std::fs;

use isotherm_experiments::registry;
use isotherm_experiments::{Context, Effort};

const SEED: u64 = 3;

/// Report of a quick run.
fn report(name: &str) -> serde_json::Value {
    println!("seed {SEED}");
    let output = std::env::temp_dir().join(format!("isotherm-{name}-{}", std::process::id()));
    let context = Context::new(Effort {
        seed: Some(SEED),
        quick: true,
        ..Effort::default()
    });
    registry::run(&registry::named(name).unwrap(), &context, &output, None).unwrap();
    let json = fs::read_to_string(output.join(name).join("data.json")).unwrap();
    fs::remove_dir_all(output).unwrap();
    serde_json::from_str(&json).unwrap()
}

/// Figure of the first run of a system in a group.
fn figure(report: &serde_json::Value, group: &str, system: &str, name: &str) -> f64 {
    let rows = report["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["group"] == group && row["system"] == system);
    row.unwrap()["more"][name].as_f64().unwrap()
}

#[test]
fn the_burst_of_a_tenant_reaches_the_others_without_a_bound() {
    let report = report("tenants");
    let p90 = |system: &str| {
        figure(
            &report,
            "Half of the capacity, the largest tenant bursts",
            system,
            "others_p90_s",
        )
    };
    assert!(
        p90("alone") < p90("FCFS"),
        "{} {}",
        p90("alone"),
        p90("FCFS")
    );
}
