//! Which policy for one's own traffic: all of them on the same requests and the same fleet, beside the oracle, and what the best
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

use isotherm_router::{PolicyName, Push, RouterConfig};

pub use fleet::Fleet;
pub use report::Report;
pub use saving::Saving;

use crate::experiment::jobs;
use crate::record::Outcome;
use crate::setup::{Balancing, LIMIT, Setup};
use crate::summary::Summary;
use crate::workload::Workload;
use crate::world::run;

/// What everything is compared with: what most load balancers do unless told otherwise.
pub const BASELINE: PolicyName = PolicyName::RoundRobin;
/// Two shares of requests within the objective are as good as each other when they differ by no more.
const SLO_SHARE_TIE: f64 = 0.005;

/// What is compared.
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
    /// Within what time a first token is wanted.
    pub slo: Duration,
    /// What everything random follows from.
    pub seed: u64,
}

/// Who decided in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A policy.
    Policy(PolicyName),
    /// The oracle, which sees into the engines.
    Oracle,
}

impl Who {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Policy(policy) => policy.as_str(),
            Self::Oracle => "oracle",
        }
    }
}

/// The figures of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Who decided.
    pub who: Who,
    /// The figures.
    pub summary: Summary,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// One for each policy, in the plan's order, then the oracle's. The baseline is among them.
    pub rows: Vec<Row>,
    /// Which policy to use; none, if nobody answered anything.
    pub best: Option<PolicyName>,
    /// Whose runs were cut at [`LIMIT`]: their figures leave out what was still to come.
    pub cut: Vec<Who>,
}

impl Comparison {
    /// The figures with this one deciding.
    #[must_use]
    pub fn of(&self, who: Who) -> Option<&Summary> {
        let row = self.rows.iter().find(|row| row.who == who);
        row.map(|row| &row.summary)
    }

    /// That all of it was played to its end.
    ///
    /// # Errors
    /// Whose runs were not, and what to do.
    pub fn whole(&self) -> Result<(), String> {
        if self.cut.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = self.cut.iter().map(|who| who.as_str()).collect();
        Err(format!(
            "after {} days of virtual time requests were still to come or on their way ({}), so that nothing can be compared; \
             play less (--first) or faster (--speed-up, --rate)",
            LIMIT.as_secs() / (24 * 3_600),
            names.join(", ")
        ))
    }
}

impl Plan {
    /// The set-up with this one deciding on this fleet.
    #[must_use]
    pub fn setup(&self, who: Who, fleet: &Fleet) -> Setup {
        let balancing = match who {
            Who::Oracle => Balancing::Oracle,
            Who::Policy(policy) => Balancing::Router(RouterConfig {
                policy,
                push: self.push,
                ttft_slo: self.slo,
                ..RouterConfig::default()
            }),
        };
        Setup {
            seed: self.seed,
            slo: self.slo,
            ..Setup::regions(fleet.regions(), balancing)
        }
    }

    /// The figures with this one deciding on this fleet.
    #[must_use]
    pub fn summary(&self, who: Who, fleet: &Fleet) -> Summary {
        self.outcome(who, fleet).summary(self.slo)
    }

    fn outcome(&self, who: Who, fleet: &Fleet) -> Outcome {
        run(&self.setup(who, fleet), &self.workload)
    }

    /// Runs everybody. `done` is told whose run is over.
    pub fn compare(&self, done: impl Fn(Who) + Sync) -> Comparison {
        let mut everybody: Vec<Who> = self.policies.iter().copied().map(Who::Policy).collect();
        if !self.policies.contains(&BASELINE) {
            everybody.push(Who::Policy(BASELINE));
        }
        everybody.push(Who::Oracle);
        let threads = available_parallelism().map_or(1, NonZero::get);
        let one = |who: &Who| {
            let outcome = self.outcome(*who, &self.fleet);
            done(*who);
            let summary = outcome.summary(self.slo);
            (Row { who: *who, summary }, outcome.reached_limit)
        };
        let runs = jobs::map(threads, &everybody, one, |_| ());
        let cut = runs.iter().filter(|(_, cut)| *cut);
        let cut = cut.map(|(row, _)| row.who).collect();
        let rows: Vec<Row> = runs.into_iter().map(|(row, _)| row).collect();
        let best = best(&rows, &self.policies);
        Comparison { rows, best, cut }
    }
}

/// The policy with most requests within the objective; of those that are as good in that, the one with the lowest 90th percentile
/// of the time to the first token; of those, the first.
fn best(rows: &[Row], policies: &[PolicyName]) -> Option<PolicyName> {
    let of = |row: &Row| match row.who {
        Who::Policy(policy) if policies.contains(&policy) => Some((policy, row.summary.clone())),
        Who::Policy(_) | Who::Oracle => None,
    };
    let candidates: Vec<(PolicyName, Summary)> = rows
        .iter()
        .filter_map(of)
        .filter(|(_, summary)| summary.requests > summary.failed)
        .collect();
    let most = candidates
        .iter()
        .map(|(_, summary)| summary.slo_attainment)
        .fold(0.0, f64::max);
    candidates
        .into_iter()
        .filter(|(_, summary)| summary.slo_attainment >= most - SLO_SHARE_TIE)
        .min_by(|(_, a), (_, b)| a.ttft_p90_s.total_cmp(&b.ttft_p90_s))
        .map(|(policy, _)| policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: PolicyName, slo_attainment: f64, ttft_p90_s: f64) -> Row {
        Row {
            who: Who::Policy(policy),
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
        assert_eq!(comparison.whole(), Ok(()));
        comparison.cut = vec![Who::Policy(BASELINE), Who::Oracle];
        let error = comparison.whole().unwrap_err();
        assert!(
            error.starts_with("after 7 days") && error.contains("(round_robin, oracle)"),
            "{error}"
        );
    }

    #[test]
    fn the_best_serves_most_in_time_and_then_soonest() {
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
            "the baseline's row alone is nobody's choice"
        );
    }
}
