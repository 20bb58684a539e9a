//! Where experiments are run: cases in, rows out, on every core that was given.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use isotherm_router::{PolicyName, Push, QueueLimits, RouterConfig};

use super::jobs;
use super::load;
use super::rows::{Row, Rows};
use crate::workload::Workload;
use crate::workload::trace::Trace;
use crate::{Outcome, Setup};

/// How much is run.
#[derive(Clone, Debug)]
pub struct Effort {
    /// The first seed; none: 1, or what the experiment takes instead.
    pub seed: Option<u64>,
    /// How many seeds each case is run with; none: what the experiment finds enough.
    pub seeds: Option<u64>,
    /// Runs at once.
    pub threads: usize,
    /// Fewer requests or a shorter time, one seed, fewer points: to see that everything works, not to measure.
    pub quick: bool,
    /// Mooncake's conversation trace; without it its synthetic twin is used.
    pub trace: Option<Arc<Trace>>,
}

impl Default for Effort {
    fn default() -> Self {
        Self {
            seed: None,
            seeds: None,
            threads: 1,
            quick: false,
            trace: None,
        }
    }
}

/// Makes the workload of a seed.
pub type Draw = Arc<dyn Fn(u64) -> Workload + Send + Sync>;

/// Something to run, with every seed.
#[derive(Clone)]
pub struct Case {
    /// As [`Row::group`].
    pub group: String,
    /// As [`Row::system`].
    pub system: String,
    /// As [`Row::x`].
    pub x: f64,
    /// Everything but the workload; its seed is set for each run.
    pub setup: Setup,
    /// The workload.
    pub draw: Draw,
}

/// Where experiments are run.
pub struct Lab {
    effort: Effort,
    /// What several experiments show is run once.
    known: Mutex<BTreeMap<String, Rows>>,
}

impl Lab {
    /// A lab of this size.
    #[must_use]
    pub fn new(effort: Effort) -> Self {
        Self {
            effort,
            known: Mutex::new(BTreeMap::new()),
        }
    }

    /// How much is run.
    #[must_use]
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// The seeds of a case, when the experiment finds `enough` of them enough.
    #[must_use]
    pub fn seeds(&self, enough: u64) -> Vec<u64> {
        let count = match (self.effort.seeds, self.effort.quick) {
            (Some(count), _) => count.max(1),
            (None, true) => 1,
            (None, false) => enough.max(1),
        };
        (0..count)
            .map(|number| self.first_seed().wrapping_add(number))
            .collect()
    }

    /// The first seed.
    #[must_use]
    pub fn first_seed(&self) -> u64 {
        self.effort.seed.unwrap_or(1)
    }

    /// A number of requests, clients or the like, made smaller when only a quick look is wanted.
    #[must_use]
    pub fn size(&self, full: usize) -> usize {
        if self.effort.quick {
            full.div_ceil(10)
        } else {
            full
        }
    }

    /// The points of an axis: all, or the ends when only a quick look is wanted.
    #[must_use]
    pub fn points<T: Copy>(&self, full: &[T]) -> Vec<T> {
        match full {
            [first, .., last] if self.effort.quick => vec![*first, *last],
            _ => full.to_vec(),
        }
    }

    /// Runs every case with every seed: rows in the order of the cases, then of the seeds.
    #[must_use]
    pub fn run(&self, enough: u64, cases: &[Case]) -> Rows {
        let seeds = self.seeds(enough);
        let jobs: Vec<(&Case, u64)> = cases
            .iter()
            .flat_map(|case| seeds.iter().map(move |&seed| (case, seed)))
            .collect();
        Rows(self.map(&jobs, |(case, seed)| {
            let outcome = outcome(case, *seed);
            row(case, *seed, &outcome)
        }))
    }

    /// The same, run only once however many experiments ask for it under this name.
    #[must_use]
    pub fn once(&self, name: &str, run: impl FnOnce() -> Rows) -> Rows {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = known().get(name) {
            return rows.clone();
        }
        let rows = run();
        known().insert(name.to_owned(), rows.clone());
        rows
    }

    /// Does something else with each item, on every core that was given.
    pub fn map<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
        let all = items.len();
        jobs::map(self.effort.threads, items, work, |done| {
            // A sign of life about every tenth; which run it was does not matter.
            if done == all || done % all.div_ceil(10).max(1) == 0 {
                eprintln!("    {done} of {all} runs");
            }
        })
    }
}

/// Runs a case once.
#[must_use]
pub fn outcome(case: &Case, seed: u64) -> Outcome {
    let setup = Setup {
        seed,
        ..case.setup.clone()
    };
    crate::run(&setup, &(case.draw)(seed))
}

/// Beside the figures of a run that came to its limit; others have none of that name.
pub const CUT: &str = "cut_at_limit";

/// What a run gave.
#[must_use]
pub fn row(case: &Case, seed: u64, outcome: &Outcome) -> Row {
    let mut more = load::figures(outcome);
    if outcome.reached_limit {
        more.insert(CUT, 1.0);
    }
    Row {
        group: case.group.clone(),
        system: case.system.clone(),
        x: case.x,
        seed,
        summary: outcome.summary(case.setup.slo),
        more,
    }
}

/// How long a request may wait in a router, in experiments. The papers refuse nobody; a service that refuses after half a
/// minute, as the default does, has less to do than one that does not.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The shipped configuration with this policy and this rule for pushing, in which nobody is refused.
#[must_use]
pub fn config(policy: PolicyName, push: Push) -> RouterConfig {
    RouterConfig {
        policy,
        push,
        queue: QueueLimits {
            length_max: 1_000_000,
            wait_max: WAIT_MAX,
        },
        ..RouterConfig::default()
    }
}
