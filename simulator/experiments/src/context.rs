//! The context of experiments: runs cases with every seed, on every core that the user allows.

use core::time::Duration;
use std::sync::Arc;
use std::thread;

use clap::Args;
use isotherm_policies::PolicyName;
use isotherm_router::{ForwardingRule, PolicyFactory, Push, QueueLimits, RouterConfig};
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::workload::adverse::POOLS;
use isotherm_simulator::workload::trace::Trace;
use isotherm_simulator::workload::{Workload, catalogue};
use isotherm_simulator::{Outcome, Setup, Telemetry, jobs};

use crate::figures::Row;
use crate::load;
use crate::rows::Rows;
pub use crate::seeds::Seeds;

/// Amount of work.
#[derive(Args, Clone, Debug, Default)]
pub struct Effort {
    /// Seeds of each case: a number of them, or FROM-TO [default: the experiment's own number]
    #[arg(long, value_name = "N|FROM-TO")]
    pub seeds: Option<Seeds>,
    /// The first seed [default: 1]
    #[arg(long, value_name = "FIRST")]
    pub seed: Option<u64>,
    /// Runs at once; the reports do not depend on it [default: one for each core]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Fewer requests or a shorter time, one seed, and of each axis little but its ends: to see that it works, not to measure
    #[arg(long)]
    pub quick: bool,
    /// Telemetry profile of the engines in every run [default: full, or the experiment's own]
    #[arg(long, value_name = "NAME", value_enum)]
    pub telemetry: Option<Telemetry>,
    /// Workloads of the experiments `robustness` and `ablate`, by name, separated by commas [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = workload)]
    pub workloads: Vec<String>,
    /// Sizes of the pools of the experiment `robustness`, in replicas, separated by commas [default: 8,32,128,512; quick: 8,32]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = pool)]
    pub pools: Vec<usize>,
    /// Mooncake's conversation trace; without it, its synthetic twin
    #[arg(skip)]
    pub trace: Option<Arc<Trace>>,
    /// Traffic of weeks; without it, its synthetic twins
    #[arg(skip)]
    pub traces: Option<Arc<Traces>>,
}

fn workload(name: &str) -> Result<String, String> {
    let all = catalogue::all();
    if all.iter().any(|known| known.name == name) {
        return Ok(name.to_owned());
    }
    let names: Vec<&str> = all.iter().map(|known| known.name).collect();
    Err(format!("use one of {}", names.join(", ")))
}

fn pool(size: &str) -> Result<usize, String> {
    let known = size.parse().ok().filter(|size| POOLS.contains(size));
    known.ok_or_else(|| format!("use one of {POOLS:?}"))
}

/// Makes the workload of a seed.
pub(crate) type WorkloadSource = Arc<dyn Fn(u64) -> Workload + Send + Sync>;

/// A set-up and a workload, run with every seed; `group`, `system` and `x` as in [`Row`].
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) group: String,
    pub(crate) system: String,
    pub(crate) x: f64,
    /// Everything but the workload; the context sets its seed for each run.
    pub(crate) setup: Setup,
    pub(crate) source: WorkloadSource,
}

impl Case {
    /// Runs it, and returns its row with more figures of the outcome.
    fn row(&self, seed: u64, telemetry: Option<Telemetry>, figures: MoreFigures<'_>) -> Row {
        let setup = Setup {
            seed,
            telemetry: telemetry.unwrap_or(self.setup.telemetry),
            ..self.setup.clone()
        };
        let outcome = isotherm_simulator::run(&setup, &(self.source)(seed));
        let mut more = load::figures(&outcome);
        if outcome.reached_limit {
            more.insert(CUT, 1.0);
        }
        more.extend(figures(self, seed, &outcome));
        Row {
            group: self.group.clone(),
            system: self.system.clone(),
            x: self.x,
            seed,
            summary: Some(outcome.summary(self.setup.slo)),
            more,
        }
    }
}

/// The cases of a group: every system at every value of x.
pub(crate) fn grid(
    group: &str,
    xs: &[f64],
    systems: &[&str],
    parts: impl Fn(f64, &str) -> (Setup, WorkloadSource),
) -> Vec<Case> {
    let case = |x, system: &str| {
        let (setup, source) = parts(x, system);
        Case {
            group: group.to_owned(),
            system: system.to_owned(),
            x,
            setup,
            source,
        }
    };
    let at = |&x: &f64| systems.iter().map(move |system| (x, system));
    let cells = xs.iter().flat_map(at);
    cells.map(|(x, system)| case(x, system)).collect()
}

/// Figures of the outcome of a case with a seed, beyond those of every row.
type MoreFigures<'a> = &'a (dyn Fn(&Case, u64, &Outcome) -> Vec<(&'static str, f64)> + Sync);

/// Extra figure of a run that came to its limit.
pub(crate) const CUT: &str = "cut_at_limit";

/// Runs the cases of experiments.
pub struct Context {
    pub(crate) effort: Effort,
}

impl Context {
    /// A context for this amount of work.
    pub fn new(effort: Effort) -> Self {
        Self { effort }
    }

    /// Seeds of a case; `default` is the experiment's own number of seeds.
    pub(crate) fn seeds(&self, default: u64) -> Vec<u64> {
        let count = match self.effort.seeds {
            Some(Seeds::Range(from, to)) => return (from..=to).collect(),
            Some(Seeds::Count(count)) => count.get(),
            None if self.effort.quick => 1,
            None => default,
        };
        let first = self.first_seed();
        let seeds = (0..count).map(|number| first.wrapping_add(number));
        seeds.collect()
    }

    pub(crate) fn first_seed(&self) -> u64 {
        match self.effort.seeds {
            Some(Seeds::Range(from, _)) => from,
            _ => self.effort.seed.unwrap_or(1),
        }
    }

    /// A number of requests, a tenth of it in a quick run.
    pub(crate) fn size(&self, full: usize) -> usize {
        if self.effort.quick {
            full.div_ceil(10)
        } else {
            full
        }
    }

    /// The first value, or the second one in a quick run.
    pub(crate) fn pick<T>(&self, [full, quick]: [T; 2]) -> T {
        if self.effort.quick { quick } else { full }
    }

    /// Points of an axis, only the ends in a quick run.
    pub(crate) fn points<T: Copy>(&self, full: &[T]) -> Vec<T> {
        match full {
            [first, .., last] if self.effort.quick => vec![*first, *last],
            _ => full.to_vec(),
        }
    }

    /// Runs every case with every seed: rows in the order of the cases, then of the seeds.
    pub(crate) fn run(&self, seeds: u64, cases: &[Case]) -> Rows {
        self.run_with(seeds, cases, &|_, _, _| Vec::new())
    }

    /// As [`Self::run`], with more figures in each row.
    pub(crate) fn run_with(&self, seeds: u64, cases: &[Case], more: MoreFigures<'_>) -> Rows {
        let seeds = self.seeds(seeds);
        let with_seeds = |case| seeds.iter().map(move |&seed| (case, seed));
        let jobs: Vec<(&Case, u64)> = cases.iter().flat_map(with_seeds).collect();
        let telemetry = self.effort.telemetry;
        Rows(self.map(&jobs, |(case, seed)| case.row(*seed, telemetry, more)))
    }

    /// Number of runs at once.
    pub(crate) fn threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        self.effort.threads.unwrap_or_else(cores)
    }

    /// Applies `work` to each item, on every core that the user allows.
    pub(crate) fn map<I: Sync, T: Send>(
        &self,
        items: &[I],
        work: impl Fn(&I) -> T + Sync,
    ) -> Vec<T> {
        let all = items.len();
        jobs::map(self.threads(), items, work, |done| {
            if done == all || done % all.div_ceil(10).max(1) == 0 {
                eprintln!("    {done} of {all} runs");
            }
        })
    }
}

/// Bound on the wait in a router: the papers reject no request, and a service that rejects some has less work.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// A router that forwards as SkyLB publishes it, without the exceptions by cost.
pub(crate) fn published(policy: PolicyName) -> RouterConfig {
    let mut config = config(policy, Push::Pending);
    config.region.forwarding = ForwardingRule::Published;
    config
}

/// The shipped configuration with this policy and this rule for pushing, without rejections.
pub(crate) fn config(policy: impl Into<PolicyFactory>, push: Push) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push,
        queue: QueueLimits {
            length_max: 1_000_000,
            wait_max: WAIT_MAX,
            ..QueueLimits::default()
        },
        ..RouterConfig::default()
    }
}
