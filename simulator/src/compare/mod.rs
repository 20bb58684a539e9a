//! Compares policies on the same requests and the same fleet, beside the oracle, and finds what the best
//! of them would save.
//!
//! - [`traffic`]: the requests; [`fleet`]: the replicas
//! - [`saving`]: how many replicas the best policy saves
//! - [`report`]: all of it as a table, or as JSON

pub mod fleet;
pub mod report;
pub mod saving;
pub mod traffic;

use core::num::NonZero;
use core::time::Duration;
use std::thread::available_parallelism;

use anyhow::ensure;
use isotherm_policies::PolicyName;
use isotherm_router::{Push, RouterConfig};
use serde::{Serialize, Serializer};

pub use fleet::Fleet;
pub use report::Report;
pub use saving::Savings;

use crate::jobs;
use crate::record::Outcome;
use crate::setup::{Arrangement, Change, LIMIT, Setup};
use crate::simulation::run;
use crate::summary::Summary;
use crate::telemetry::Telemetry;
use crate::workload::Workload;

/// Baseline of the comparison: the default of most load balancers.
pub const BASELINE: PolicyName = PolicyName::RoundRobin;
/// Two shares of requests within the objective are as good as each other when they differ by no more.
const SLO_SHARE_TIE: f64 = 0.005;

/// Input of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The requests.
    pub workload: Workload,
    /// The replicas.
    pub fleet: Fleet,
    /// The policies, in the order of the table.
    pub policies: Vec<PolicyName>,
    /// When a replica may be sent another request.
    pub push: Push,
    /// Objective for the time to the first token.
    pub slo: Duration,
    /// Telemetry profile of the engines.
    pub telemetry: Telemetry,
    /// Faults of the fleet during the run.
    pub changes: Vec<Change>,
    /// Seed of everything random.
    pub seed: u64,
}

/// System under test in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// A policy.
    Policy(PolicyName),
    /// The oracle, which sees into the engines.
    Oracle,
}

impl System {
    /// Name of the system.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.into(),
            Self::Oracle => "oracle",
        }
    }
}

/// Figures of a system's run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SystemFigures {
    /// System under test.
    #[serde(rename = "name", serialize_with = "serialize_name")]
    pub system: System,
    /// Figures of the run.
    #[serde(flatten)]
    pub summary: Summary,
}

fn serialize_name<S: Serializer>(system: &System, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(system.as_str())
}

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Rows of the policies in the plan's order, then of the oracle. The baseline is among them.
    pub rows: Vec<SystemFigures>,
    /// Policy to use; `None` when no request was answered.
    pub best: Option<PolicyName>,
    /// Systems whose runs were cut at [`LIMIT`]: their figures leave out later requests.
    pub cut: Vec<System>,
}

impl Comparison {
    /// The figures of a system.
    pub fn of(&self, system: System) -> Option<&Summary> {
        let row = self.rows.iter().find(|row| row.system == system);
        row.map(|row| &row.summary)
    }

    /// Checks that every run was played to its end.
    pub fn whole(&self) -> anyhow::Result<()> {
        let names: Vec<&str> = self.cut.iter().map(|system| system.as_str()).collect();
        ensure!(
            names.is_empty(),
            "after {} days of virtual time requests were still to come or on their way ({}), so that nothing can be compared; \
             play less (--first) or faster (--speed-up, --rate)",
            LIMIT.as_secs() / (24 * 3_600),
            names.join(", ")
        );
        Ok(())
    }
}

impl Plan {
    fn outcome(&self, system: System, fleet: &Fleet) -> Outcome {
        let arrangement = match system {
            System::Oracle => Arrangement::Oracle,
            System::Policy(policy) => Arrangement::Router(RouterConfig {
                policy: policy.into(),
                push: self.push,
                ttft_slo: self.slo,
                ..RouterConfig::default()
            }),
        };
        let setup = Setup {
            seed: self.seed,
            slo: self.slo,
            telemetry: self.telemetry,
            changes: self.changes.clone(),
            ..Setup::regions(fleet.regions(), arrangement)
        };
        run(&setup, &self.workload)
    }

    /// The figures of a system on a fleet.
    pub fn summary(&self, system: System, fleet: &Fleet) -> Summary {
        self.outcome(system, fleet).summary(self.slo)
    }

    /// Runs every system. `done` is called with each system whose run is over.
    pub fn compare(&self, done: impl Fn(System) + Sync) -> Comparison {
        let mut systems: Vec<System> = self.policies.iter().copied().map(System::Policy).collect();
        if !self.policies.contains(&BASELINE) {
            systems.push(System::Policy(BASELINE));
        }
        systems.push(System::Oracle);
        let threads = available_parallelism().map_or(1, NonZero::get);
        let one = |system: &System| {
            let outcome = self.outcome(*system, &self.fleet);
            done(*system);
            let figures = SystemFigures {
                system: *system,
                summary: outcome.summary(self.slo),
            };
            (figures, outcome.reached_limit.then_some(*system))
        };
        let runs = jobs::map(threads, &systems, one, |_| ());
        let (rows, cut): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        Comparison {
            best: best(&rows, &self.policies),
            rows,
            cut: cut.into_iter().flatten().collect(),
        }
    }
}

/// The policy with most requests within the objective; among equals, the policy with the lowest 90th percentile
/// of the time to the first token; of those, the first.
fn best(rows: &[SystemFigures], policies: &[PolicyName]) -> Option<PolicyName> {
    let candidates = rows.iter().filter_map(|row| match row.system {
        System::Policy(policy) if policies.contains(&policy) => Some((policy, &row.summary)),
        System::Policy(_) | System::Oracle => None,
    });
    let candidates = candidates.filter(|(_, summary)| summary.requests > summary.failed);
    let attainments = candidates
        .clone()
        .map(|(_, summary)| summary.slo_attainment);
    let most = attainments.fold(0.0, f64::max);
    candidates
        .filter(|(_, summary)| summary.slo_attainment >= most - SLO_SHARE_TIE)
        .min_by(|(_, a), (_, b)| a.ttft_p90_s.total_cmp(&b.ttft_p90_s))
        .map(|(policy, _)| policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: PolicyName, slo_attainment: f64, ttft_p90_s: f64) -> SystemFigures {
        SystemFigures {
            system: System::Policy(policy),
            summary: Summary {
                requests: 10,
                slo_attainment,
                ttft_p90_s,
                ..Summary::default()
            },
        }
    }

    #[test]
    fn runs_that_were_cut_are_named() {
        let mut comparison = Comparison {
            rows: Vec::new(),
            best: None,
            cut: Vec::new(),
        };
        assert!(comparison.whole().is_ok());
        comparison.cut = vec![System::Policy(BASELINE), System::Oracle];
        let error = comparison.whole().unwrap_err().to_string();
        assert!(
            error.starts_with("after 7 days") && error.contains("(round_robin, oracle)"),
            "{error}"
        );
    }

    #[test]
    fn the_best_policy_has_most_requests_within_the_objective_then_the_lowest_p90() {
        let (a, b, c) = (
            PolicyName::PrefixTree,
            PolicyName::CacheAware,
            PolicyName::Random,
        );
        let rows = [row(a, 0.950, 3.0), row(b, 0.953, 4.0), row(c, 0.80, 0.1)];
        assert_eq!(
            best(&rows, &[a, b, c]),
            Some(a),
            "as good as b in time, and sooner"
        );
        assert_eq!(best(&rows, &[b, c]), Some(b));
        assert_eq!(
            best(&rows, &[]),
            None,
            "the baseline's row alone is no choice"
        );
    }
}
