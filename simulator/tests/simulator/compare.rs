//! The comparison from end to end: the same answer twice, and an answer that its own figures bear out.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test may stop it as the test itself may"
)]

use core::time::Duration;

use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;
use isotherm_router::Push;
use isotherm_simulator::Telemetry;
use isotherm_simulator::compare::traffic::Traffic;
use isotherm_simulator::compare::{BASELINE, Comparison, Fleet, Plan, Report, System};

fn plan(requests_per_s: f64) -> Plan {
    let traffic = Traffic::generated("tools", 1, 0.1, Some(requests_per_s)).unwrap();
    Plan {
        workload: traffic.workload,
        fleet: Fleet::Equal {
            engine: Preset::Llama31_8b2xA100,
            replicas: 4,
            regions: vec!["one".to_owned()],
        },
        policies: vec![PolicyName::PrefixTree, PolicyName::CacheAware],
        push: Push::Pending,
        slo: Duration::from_secs(5),
        telemetry: Telemetry::default(),
        changes: Vec::new(),
        seed: 1,
    }
}

fn rendered(plan: &Plan, comparison: &Comparison) -> (String, String) {
    let report = Report {
        plan,
        comparison,
        saving: None,
    };
    (report.text(), report.json().unwrap())
}

#[test]
fn a_comparison_is_deterministic_and_includes_baseline_and_oracle() {
    let plan = plan(4.0);
    let (first, second) = (plan.compare(|_| ()), plan.compare(|_| ()));
    let names: Vec<&str> = first.rows.iter().map(|row| row.system.as_str()).collect();
    assert_eq!(
        names,
        ["prefix_tree", "cache_aware", "round_robin", "oracle"]
    );
    assert_eq!(rendered(&plan, &first), rendered(&plan, &second));
    let (text, json) = rendered(&plan, &first);
    let best = first.best.unwrap();
    assert!(plan.policies.contains(&best));
    assert!(text.contains(&format!("Use {best}: ")), "{text}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["use_policy"], best.as_ref());
    assert_eq!(json["systems"][3]["name"], "oracle");
    assert_eq!(json["systems"][0]["requests"], 350);
}

#[test]
fn a_saving_holds_when_it_is_run_again() {
    let mut savings = 0;
    for rate in [4.0, 6.5, 9.0] {
        let plan = plan(rate);
        let comparison = plan.compare(|_| ());
        let best = comparison.best.unwrap();
        let Some(saving) = plan.saving(&comparison) else {
            continue;
        };
        println!(
            "{rate}/s: {best} {} for {:?}",
            saving.replicas, saving.baseline_replicas
        );
        savings += 1;
        assert!((0.0..1.0).contains(&saving.share()));
        // Run again on the fleet that it names.
        let fleet = plan.fleet.of(saving.replicas).unwrap();
        assert_eq!(plan.summary(System::Policy(best), &fleet), saving.policy);
        if let Some(replicas) = saving.baseline_replicas {
            let fleet = plan.fleet.of(replicas).unwrap();
            assert_eq!(
                plan.summary(System::Policy(BASELINE), &fleet),
                saving.baseline
            );
            assert!(replicas > saving.replicas);
            // The system on another fleet than the whole one is as good as the other system.
            let (policy, baseline) = (saving.policy.ttft_p90_s, saving.baseline.ttft_p90_s);
            if replicas > 4 {
                assert!(baseline <= policy, "{baseline} s against {policy} s");
            } else {
                assert!(policy <= baseline, "{policy} s against {baseline} s");
            }
        }
    }
    assert!(
        savings > 0,
        "a policy that finds caches saves something at one of these rates"
    );
}
