//! DualMap, Figure 5: the parts of DualMap, switched off.
//!
//! Five configurations on the conversations, as in the paper: the choice between the two candidates by cache, by load, by
//! the lowest time to first token, or by the objective (section 3.2), and the last of them with rebalancing (section 3.3). The
//! paper names no rate: its figures stand beside those of the highest rate at which some configuration still serves 90 %
//! within the objective.

use isotherm_policies::{Ablation, CandidateRule, DualMap};
use isotherm_report::number::{percent, short};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_router::{PolicyFactory, Push};
use isotherm_simulator::{Arrangement, Setup};

use crate::context::{Context, WorkloadSource, config, grid};
use crate::document::Document;
use crate::dualmap::{CONVERSATION, DUAL_MAP, GOODPUT_SHARE, REPLICAS, Sweep, setup, source};
use crate::figures::{ATTAINMENT, CV, HITS, P50, P90};
use crate::paper::Source;
use crate::rows::{Panel, highest};
use crate::workloads::described;

const AFFINITY: &str = "cache-affinity";
const LEAST_LOADED: &str = "least-loaded";
const MIN_TTFT: &str = "min-ttft";
const NO_REBALANCE: &str = "no-rebalance";
const WHOLE: &str = "DualMap";
const SYSTEMS: [&str; 5] = [AFFINITY, LEAST_LOADED, MIN_TTFT, NO_REBALANCE, WHOLE];
const RATES: [f64; 7] = [6.0, 7.0, 8.0, 8.5, 9.0, 10.0, 12.0];
const SEEDS: u64 = 2;
const SOURCE: Source = Source("DualMap, section 4.3, text on Figure 5");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let parts = |rate, system: &str| parts(context, rate, system);
    let cases = grid(CONVERSATION, &context.points(&RATES), &SYSTEMS, parts);
    let rows = context.run(SEEDS, &cases);
    let sweep = Sweep::new(&rows, CONVERSATION);
    let panel = sweep.at(telling_rate(sweep));
    // Relative saving of a configuration against another.
    let less = |ours, theirs, figure| [1.0 - panel.ratio(ours, theirs, figure)];
    Document {
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each), conversations, pending requests wait in the router. All five hash the prefix to the same two \
             candidates. {}",
            described(&context.effort)
        )],
        paper: vec![
            SOURCE.share(
                "median TTFT: no-rebalance below min-ttft, by",
                (0.235, 0.235),
                &less(NO_REBALANCE, MIN_TTFT, P50),
            ),
            SOURCE.share(
                "p90 TTFT: no-rebalance below min-ttft, by",
                (0.185, 0.185),
                &less(NO_REBALANCE, MIN_TTFT, P90),
            ),
            SOURCE.share(
                "p90 TTFT: DualMap below no-rebalance, by",
                (0.113, 0.113),
                &less(WHOLE, NO_REBALANCE, P90),
            ),
        ],
        conclusions: conclusions(sweep, panel),
        sections: vec![
            Section::detail("Five configurations over the rate")
                .text(format!("The table is of {} requests/s.", short(panel.x)))
                .table(table(sweep, panel))
                .table(rows.table("requests/s", &[P50, P90, HITS, CV, ATTAINMENT])),
        ],
        rows,
        ..Document::default()
    }
}

fn parts(context: &Context, rate: f64, system: &str) -> (Setup, WorkloadSource) {
    let selection = match system {
        AFFINITY => CandidateRule::CacheAffinity,
        LEAST_LOADED => CandidateRule::LeastLoaded,
        MIN_TTFT => CandidateRule::MinTtft,
        _ => CandidateRule::SloAware,
    };
    let ablation = Ablation {
        selection,
        rebalances: system == WHOLE,
    };
    let setup = setup(REPLICAS, ablated(ablation));
    (setup, source(context, CONVERSATION, rate))
}

/// `dual_map` with parts switched off.
fn ablated(ablation: Ablation) -> Arrangement {
    let policy = PolicyFactory::new(DUAL_MAP, move |_| Box::new(DualMap::new(ablation)));
    Arrangement::Router(config(policy, Push::Pending))
}

/// The highest rate at which the best configuration serves enough within the objective; else the lowest.
fn telling_rate(sweep: Sweep<'_>) -> f64 {
    let rates = sweep.rates();
    let is_enough = |rate: &&f64| sweep.best_attainment(&SYSTEMS, **rate) >= GOODPUT_SHARE;
    let rate = rates.iter().rfind(is_enough).or(rates.first());
    rate.copied().unwrap_or(0.0)
}

fn seconds(value: f64) -> String {
    format!("{} s", short(value))
}

fn table(sweep: Sweep<'_>, panel: Panel<'_>) -> Table {
    let figures = [ATTAINMENT, P50, P90, HITS, CV];
    let columns = ["configuration", "goodput, requests/s"].into_iter();
    let columns = columns.chain(figures.map(|figure| figure.name));
    Table::new(columns).with_rows(SYSTEMS.map(|system| {
        let head = [system.to_owned(), sweep.goodput_shown(system)];
        head.into_iter()
            .chain(figures.map(|figure| panel.shown(system, figure)))
    }))
}

fn conclusions(sweep: Sweep<'_>, panel: Panel<'_>) -> Vec<Conclusion> {
    let p90s = SYSTEMS.map(|system| format!("{system} {}", seconds(panel.mean(system, P90))));
    let slowest = highest(SYSTEMS, |system| panel.mean(system, P90));
    let mut conclusions = vec![
        Conclusion::note(format!(
            "At {} requests/s, cache hits: {}.",
            short(panel.x),
            panel.list(&SYSTEMS, HITS)
        )),
        Conclusion::claim(
            "The objective as the criterion is better than the lowest time to the first token for each request: more within it.",
            panel.mean(NO_REBALANCE, ATTAINMENT) > panel.mean(MIN_TTFT, ATTAINMENT),
        ),
        Conclusion::claim(
            format!(
                "As in the paper, cache-affinity has the highest p90 TTFT ({}).",
                p90s.join(", ")
            ),
            slowest == Some(AFFINITY),
        ),
    ];
    conclusions.extend(sweep.rates().into_iter().map(|rate| {
        let both = |figure, format: fn(f64) -> String| {
            [WHOLE, NO_REBALANCE].map(|system| format(sweep.at(rate).mean(system, figure)))
        };
        let [within, within_without] = both(ATTAINMENT, percent);
        let [p90, p90_without] = both(P90, seconds);
        let [hits, hits_without] = both(HITS, percent);
        Conclusion::note(format!(
            "Rebalancing at {} requests/s: {within} within 5 s against {within_without} without, p90 TTFT {p90} against {p90_without}, cache hits {hits} against {hits_without}.",
            short(rate)
        ))
    }));
    conclusions
}
