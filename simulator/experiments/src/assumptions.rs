//! The assumption on which DualMap's advantage rests.
//!
//! The paper ranks DualMap above Preble, Min TTFT and Least Loaded at high rates of conversations. The experiment varies each
//! assumption behind that order by itself and sweeps the same policies over the rate again:
//!
//! - the push mode: the router holds back what an engine cannot start, or pushes everything at once;
//! - the router's view of the load: every 100 ms, every second, never;
//! - memory: none for answers (one token, as on a prefill instance), or a third of the blocks, or four times as many.
//!
//! Every policy runs under the same rule in each panel, unlike `dualmap-3`, where the baselines push at once as in the paper.

use core::time::Duration;
use std::sync::Arc;

use isotherm_policies::PolicyName;
use isotherm_report::number::{percent, short, times};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_router::Push;
use isotherm_simulator::{Arrangement, Setup};

use crate::context::{Context, WorkloadSource, config, grid};
use crate::document::Document;
use crate::dualmap::{
    CONVERSATION, DUAL_MAP, GOODPUT_SHARE, LEAST_LOADED, MIN_TTFT, PREBLE, REPLICAS, Sweep, policy,
    setup, source,
};
use crate::figures::{ATTAINMENT, HITS};
use crate::rows::Rows;
use crate::workloads::described;

const PREFIX_TREE: &str = "prefix_tree";
const SYSTEMS: [&str; 5] = [DUAL_MAP, PREBLE, MIN_TTFT, LEAST_LOADED, PREFIX_TREE];
/// Systems that the paper ranks below DualMap.
const BELOW: [&str; 3] = [PREBLE, MIN_TTFT, LEAST_LOADED];
const SEEDS: u64 = 1;
/// Relative difference below which two goodputs count as equal: the rates are coarser.
const TIE: f64 = 0.02;

/// A time longer than any run.
const NEVER: Duration = Duration::from_secs(7 * 24 * 3_600);

/// An assumption, varied.
struct Assumption {
    name: &'static str,
    /// Difference from the first assumption.
    what: &'static str,
    rates: &'static [f64],
    push: Push,
    probe_interval: Option<Duration>,
    /// Blocks of KV memory, over those of the engine.
    memory: (u32, u32),
    has_answers: bool,
}

const AS_MEASURED: Assumption = Assumption {
    name: "as it is",
    what: "selective pushing by pending requests, probes every 100 ms, 944,000 tokens of memory an engine",
    rates: &[6.0, 7.0, 8.0, 8.5, 9.0],
    push: Push::Pending,
    probe_interval: None,
    memory: (1, 1),
    has_answers: true,
};

const ASSUMPTIONS: [Assumption; 7] = [
    AS_MEASURED,
    Assumption {
        name: "pushed at once",
        what: "every policy pushes at once (blind); engines queue what they cannot start",
        push: Push::Blind,
        ..AS_MEASURED
    },
    Assumption {
        name: "stale load",
        what: "probes every second",
        probe_interval: Some(Duration::from_secs(1)),
        ..AS_MEASURED
    },
    Assumption {
        name: "pushed at once, no probes",
        what: "blind, and the router sees nothing of the engines: it goes by what it has sent, by how long that should take, and by what ends",
        push: Push::Blind,
        probe_interval: Some(NEVER),
        ..AS_MEASURED
    },
    Assumption {
        name: "no answers",
        what: "answers of one token: no memory and no time goes into decoding",
        rates: &[8.0, 10.0, 11.0, 12.0, 13.0],
        has_answers: false,
        ..AS_MEASURED
    },
    Assumption {
        name: "a third of the memory",
        what: "314,000 tokens an engine",
        rates: &[5.0, 6.0, 7.0, 7.5, 8.0],
        memory: (1, 3),
        ..AS_MEASURED
    },
    Assumption {
        name: "four times the memory",
        what: "3.8 million tokens an engine",
        memory: (4, 1),
        ..AS_MEASURED
    },
];

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let cases = ASSUMPTIONS.each_ref().map(|assumption| {
        let rates = context.points(assumption.rates);
        let parts = |rate, system: &str| {
            let source = source(context, CONVERSATION, rate);
            let source = if assumption.has_answers {
                source
            } else {
                without_answers(source)
            };
            (assumption.setup(system), source)
        };
        grid(assumption.name, &rates, &SYSTEMS, parts)
    });
    let rows = context.run(SEEDS, &cases.concat());
    Document {
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each), conversations. One assumption is varied in each panel, for all policies alike. Goodput: the \
                 highest rate with {} of the requests within 5 s. {}",
            percent(GOODPUT_SHARE),
            described(&context.effort)
        )],
        conclusions: conclusions(&rows),
        sections: sections(&rows),
        rows,
        ..Document::default()
    }
}

impl Assumption {
    fn setup(&self, system: &str) -> Setup {
        let policy = match system {
            PREFIX_TREE => PolicyName::PrefixTree,
            _ => policy(system),
        };
        let mut config = config(policy, self.push);
        if self.probe_interval == Some(NEVER) {
            config.probe_stale_after = NEVER;
        }
        let mut setup = setup(REPLICAS, Arrangement::Router(config));
        setup.probe_interval = self.probe_interval.unwrap_or(setup.probe_interval);
        let (times, over) = self.memory;
        for replica in setup
            .regions
            .iter_mut()
            .flat_map(|region| &mut region.replicas)
        {
            replica.config.blocks = replica.config.blocks.saturating_mul(times) / over;
        }
        setup
    }

    fn sweep<'a>(&'a self, rows: &'a Rows) -> Sweep<'a> {
        Sweep::new(rows, self.name)
    }
}

/// The workload with answers of one token.
fn without_answers(source: WorkloadSource) -> WorkloadSource {
    Arc::new(move |seed| {
        let mut workload = source(seed);
        for step in workload
            .sessions
            .iter_mut()
            .flat_map(|session| &mut session.steps)
        {
            step.output_tokens = 1;
        }
        workload
    })
}

fn conclusions(rows: &Rows) -> Vec<Conclusion> {
    let order = |assumption: &Assumption| {
        let sweep = assumption.sweep(rows);
        let ours = sweep.goodput(DUAL_MAP);
        let (best, theirs) = sweep.best_goodput(&BELOW);
        Conclusion::claim(
            format!(
                "{}: the paper's order holds: DualMap's goodput is {} requests/s, that of the best of {}, {best}, is {} ({}).",
                assumption.name,
                sweep.goodput_shown(DUAL_MAP),
                BELOW.join(", "),
                sweep.goodput_shown(best),
                times(ours / theirs)
            ),
            theirs > 0.0 && ours >= theirs * (1.0 + TIE),
        )
    };
    let hits = |assumption: &Assumption| Conclusion::note(cache_hits(assumption.sweep(rows)));
    let hits = ASSUMPTIONS.iter().map(hits);
    ASSUMPTIONS.iter().map(order).chain(hits).collect()
}

/// The cache hits of each system where the fleet is full, which explain the order.
fn cache_hits(sweep: Sweep<'_>) -> String {
    let (_, goodput) = sweep.best_goodput(&BELOW);
    let rates = sweep.rates();
    let (rate, place) = match rates.iter().find(|rate| **rate > goodput) {
        Some(rate) => (*rate, "where the best of the others is past its goodput"),
        None => (
            rates.last().copied().unwrap_or(0.0),
            "the highest rate, at which the best of the others is not past its goodput",
        ),
    };
    format!(
        "{}, at {} requests/s, {place}, prompt tokens found in caches: {}.",
        sweep.group,
        short(rate),
        sweep.at(rate).list(&SYSTEMS, HITS)
    )
}

fn sections(rows: &Rows) -> Vec<Section> {
    let columns = core::iter::once("assumption").chain(SYSTEMS);
    let table = Table::new(columns).with_rows(ASSUMPTIONS.iter().map(|assumption| {
        let goodput = |system| assumption.sweep(rows).goodput_shown(system);
        core::iter::once(assumption.name.to_owned()).chain(SYSTEMS.map(goodput))
    }));
    let overview = Section::detail("Goodput under each assumption, requests/s")
        .text("Compare along a line; rates of different lines are those of different engines.")
        .table(table);
    let rates =
        Section::detail("Over the rate").table(rows.table("requests/s", &[ATTAINMENT, HITS]));
    let about = |assumption: &Assumption| {
        Section::detail(assumption.name).text(format!("{}.", assumption.what))
    };
    [overview, rates]
        .into_iter()
        .chain(ASSUMPTIONS.iter().map(about))
        .collect()
}
