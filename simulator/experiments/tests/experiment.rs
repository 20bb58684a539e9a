//! Experiments end to end: the files, the same bytes for the same seed whatever the number of threads, others for another.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops where something is wrong"
)]

use std::collections::BTreeMap;
use std::fs;

use isotherm_experiments::registry::{self, EXPERIMENTS};
use isotherm_experiments::{Context, Effort};
use isotherm_simulator::Telemetry;

const FILES: [&str; 3] = ["data.csv", "data.json", "skylb-10.md"];

/// Files of a quick run of an experiment.
fn files(name: &str, seed: u64, threads: usize) -> BTreeMap<&'static str, String> {
    let output = std::env::temp_dir().join(format!(
        "isotherm-experiment-{name}-{seed}-{threads}-{}",
        std::process::id()
    ));
    let context = Context::new(Effort {
        seed: Some(seed),
        threads: Some(threads),
        quick: true,
        ..Effort::default()
    });
    let page = registry::run(&registry::named(name).unwrap(), &context, &output, None).unwrap();
    assert_eq!(page, output.join(name).join("skylb-10.md"));
    let read = |file| fs::read_to_string(output.join(name).join(file)).unwrap();
    let files = FILES.map(|file| (file, read(file))).into();
    fs::remove_dir_all(output).unwrap();
    files
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_does_not() {
    let once = files("skylb-10", 1, 1);
    assert_eq!(once, files("skylb-10", 1, 2));
    let other = files("skylb-10", 2, 2);
    for file in FILES {
        assert_ne!(once[file], other[file], "{file}");
    }

    let csv: Vec<&str> = once["data.csv"].lines().collect();
    assert_eq!(
        csv.len(),
        1 + 4 * 4,
        "four sizes of the fleet, four systems, one seed"
    );
    let columns = |line: &str| {
        // Parts between quotes are text.
        let outside = line.split('"').step_by(2);
        outside.map(|part| part.matches(',').count()).sum::<usize>()
    };
    assert!(csv.iter().all(|line| columns(line) == columns(csv[0])));
    let json: serde_json::Value = serde_json::from_str(&once["data.json"]).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 16);
    assert!(
        json["rows"][0]["summary"]["throughput_tokens_per_s"]
            .as_f64()
            .unwrap()
            > 0.0
    );
    assert_eq!(json["paper"][0]["paper"]["low"], 1.07);
    let page = &once["skylb-10.md"];
    assert!(
        page.contains("](skylb-10-figure-10.csv) (16 rows)"),
        "{page}"
    );
    assert!(page.lines().count() <= 40, "{page}");
}

#[test]
fn names_are_unique_and_an_unknown_name_lists_all() {
    let error = registry::named("skylb-99").err().unwrap().to_string();
    for experiment in EXPERIMENTS {
        assert_eq!(registry::named(experiment.name).unwrap().len(), 1);
        assert!(error.contains(experiment.name));
    }
    assert_eq!(registry::named("all").unwrap().len(), EXPERIMENTS.len());
    let names: std::collections::BTreeSet<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
    assert_eq!(names.len(), EXPERIMENTS.len());
}

/// The JSON file of a quick run of an experiment.
fn data(name: &str, effort: Effort) -> serde_json::Value {
    let output = std::env::temp_dir().join(format!("isotherm-{name}-{}", std::process::id()));
    let context = Context::new(Effort {
        quick: true,
        ..effort
    });
    registry::run(&registry::named(name).unwrap(), &context, &output, None).unwrap();
    let json = fs::read_to_string(output.join(name).join("data.json")).unwrap();
    fs::remove_dir_all(output).unwrap();
    serde_json::from_str(&json).unwrap()
}

#[test]
fn robustness_judges_a_workload_with_a_profile_beside_every_rival() {
    let json = data(
        "robustness",
        Effort {
            telemetry: Some(Telemetry::Opaque),
            workloads: vec!["bursty".to_owned()],
            ..Effort::default()
        },
    );
    let rows = json["rows"].as_array().unwrap();
    let systems: std::collections::BTreeSet<&str> = rows
        .iter()
        .map(|row| row["system"].as_str().unwrap())
        .collect();
    assert_eq!(
        systems.len(),
        rows.len(),
        "one workload, one profile, one seed"
    );
    for system in [
        "isotherm",
        "cache_aware / blind",
        "llm-d / blind",
        "llm-d / outstanding",
    ] {
        assert!(systems.contains(system), "{system}");
    }
    let first = json["findings"][0]["text"].as_str().unwrap();
    assert!(
        first.starts_with("In at least 95.0 % of the cells"),
        "{first}"
    );
    assert_eq!(rows[0]["group"], "bursty, opaque");
}

#[test]
fn the_burst_of_a_tenant_reaches_the_others_without_a_bound() {
    let json = data("tenants", Effort::default());
    let rows = json["rows"].as_array().unwrap();
    let p90 = |system: &str| {
        let group = "Half of the capacity, the largest tenant bursts";
        let mut rows = rows.iter();
        let row = rows.find(|row| row["group"] == group && row["system"] == system);
        row.unwrap()["more"]["others_p90_s"].as_f64().unwrap()
    };
    let (alone, unbound) = (p90("alone"), p90("FCFS"));
    assert!(alone < unbound, "{alone} {unbound}");
}
