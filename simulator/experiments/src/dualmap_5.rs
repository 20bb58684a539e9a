//! DualMap, Figure 5: which of its parts is good for what.
//!
//! Five configurations on the conversations, as in the paper: one of the two candidates by cache, by load, by the lowest
//! time to the first token, or by the objective (section 3.2), and the last of them with rebalancing (section 3.3). The
//! paper does not say at which rate; shown are rates from plenty to too much, and the figures beside the paper's are those
//! of the highest rate at which some configuration still serves 90 % within the objective: the one where a choice counts.

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short};
use isotherm_router::{Ablation, CandidateRule};

use crate::charts::{Axes, Charts};
use crate::context::{Case, Context};
use crate::document::Document;
use crate::dualmap::{
    CONVERSATION, DUAL_MAP, GOODPUT_SHARE, REPLICAS, arrangement, best_attainment, goodput_shown,
    setup, source,
};
use crate::figures::{Figure, attainment, cv, hits, p50, p90};
use crate::paper::{PaperComparison, PaperFigure};
use crate::rows::Rows;
use isotherm_report::{Conclusion, Section, Table};
use isotherm_simulator::Setup;

const AFFINITY: &str = "cache-affinity";
const LEAST_LOADED: &str = "least-loaded";
const MIN_TTFT: &str = "min-ttft";
const NO_REBALANCE: &str = "no-rebalance";
const WHOLE: &str = "DualMap";
const SYSTEMS: [&str; 5] = [AFFINITY, LEAST_LOADED, MIN_TTFT, NO_REBALANCE, WHOLE];
const RATES: [f64; 7] = [6.0, 7.0, 8.0, 8.5, 9.0, 10.0, 12.0];
const SEEDS: u64 = 2;
const SOURCE: &str = "DualMap, section 4.3, text on Figure 5";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let mut cases = Vec::new();
    for rate in context.points(&RATES) {
        for system in SYSTEMS {
            cases.push(case(context, system, rate));
        }
    }
    let rows = context.run(SEEDS, &cases);
    let rate = telling_rate(&rows);
    Document {
        title: "DualMap, Figure 5: its parts switched off".into(),
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each), conversations, pending requests wait in the router. All five hash the prefix to the same two \
             candidates. {}",
            crate::workloads::described(context.effort())
        )],
        paper: paper(&rows, rate),
        conclusions: conclusions(&rows, rate),
        sections: vec![section(&rows, rate)],
        rows,
        ..Document::default()
    }
}

fn case(context: &Context, system: &str, rate: f64) -> Case {
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
    let setup = Setup {
        ablation: Some(ablation),
        ..setup(REPLICAS, arrangement(DUAL_MAP))
    };
    let source = source(context, CONVERSATION, rate);
    Case::new(CONVERSATION, system, rate, setup, &source)
}

/// The highest rate at which the best configuration serves enough within the objective; else the lowest.
fn telling_rate(rows: &Rows) -> f64 {
    let best = |x: &f64| best_attainment(rows, CONVERSATION, &SYSTEMS, *x);
    let xs = rows.xs(CONVERSATION);
    let enough = xs.iter().rfind(|x| best(x) >= GOODPUT_SHARE);
    enough.or(xs.first()).copied().unwrap_or(0.0)
}

fn seconds(value: f64) -> String {
    format!("{} s", short(value))
}

fn section(rows: &Rows, rate: f64) -> Section {
    let charts = Charts {
        rows,
        systems: &SYSTEMS,
    };
    let chart = |title, caption, y, scale, figure| {
        let axes = Axes {
            x: "requests/s",
            y,
            scale,
            reference: None,
        };
        charts.lines((title, caption), CONVERSATION, axes, figure)
    };
    let log = "Logarithmic. Less is better.";
    let even = "Coefficient of variation of pending prefill tokens. Less is more even.";
    let within = "Share of requests with a first token within 5 s.";
    let found = "Share of prompt tokens found in caches.";
    Section::detail("Five configurations over the rate")
        .text(format!("The table is of {} requests/s.", short(rate)))
        .charts(vec![
            chart(
                "Median TTFT (Figure 5a)",
                log,
                "seconds",
                Scale::Log,
                p50 as Figure,
            ),
            chart(
                "90th percentile of TTFT (Figure 5b)",
                log,
                "seconds",
                Scale::Log,
                p90,
            ),
            chart(
                "Cache hits (Figure 5c)",
                found,
                "share",
                Scale::Linear,
                hits,
            ),
            chart("Evenness (Figure 5d)", even, "CV", Scale::Linear, cv),
            chart(
                "Effective request capacity",
                within,
                "share within 5 s",
                Scale::Linear,
                attainment,
            ),
        ])
        .table(table(rows, rate))
}

fn table(rows: &Rows, rate: f64) -> Table {
    let columns = [
        "configuration",
        "goodput, requests/s",
        "within 5 s",
        "TTFT p50",
        "TTFT p90",
        "cache hits",
        "CV",
    ];
    Table::new(columns).with_rows(SYSTEMS.map(|system| {
        let mean = |figure: Figure| rows.mean(CONVERSATION, system, rate, figure);
        [
            system.to_owned(),
            goodput_shown(rows, CONVERSATION, system),
            percent(mean(attainment)),
            seconds(mean(p50)),
            seconds(mean(p90)),
            percent(mean(hits)),
            short(mean(cv)),
        ]
    }))
}

/// Relative saving of the first system of a pair against the second.
fn less(rows: &Rows, rate: f64, pair: (&str, &str), figure: Figure) -> f64 {
    1.0 - rows.ratio(CONVERSATION, pair, rate, figure)
}

fn paper(rows: &Rows, rate: f64) -> Vec<PaperComparison> {
    let less = |pair, figure| less(rows, rate, pair, figure);
    vec![
        PaperComparison::one(
            "median TTFT: no-rebalance below min-ttft, by",
            PaperFigure::share(0.235, SOURCE),
            less((NO_REBALANCE, MIN_TTFT), p50),
        ),
        PaperComparison::one(
            "p90 TTFT: no-rebalance below min-ttft, by",
            PaperFigure::share(0.185, SOURCE),
            less((NO_REBALANCE, MIN_TTFT), p90),
        ),
        PaperComparison::one(
            "p90 TTFT: DualMap below no-rebalance, by",
            PaperFigure::share(0.113, SOURCE),
            less((WHOLE, NO_REBALANCE), p90),
        ),
    ]
}

fn conclusions(rows: &Rows, rate: f64) -> Vec<Conclusion> {
    let mean = |system: &str, figure: Figure| rows.mean(CONVERSATION, system, rate, figure);
    let of = |figure: Figure, format: fn(f64) -> String| {
        let all = SYSTEMS.map(|system| format!("{system} {}", format(mean(system, figure))));
        all.join(", ")
    };
    let most = |figure: Figure| {
        SYSTEMS
            .into_iter()
            .max_by(|a, b| mean(a, figure).total_cmp(&mean(b, figure)))
            .unwrap_or(WHOLE)
    };
    let mut conclusions = vec![
        Conclusion::note(format!(
            "At {} requests/s, cache hits: {}.",
            short(rate),
            of(hits, percent)
        )),
        Conclusion::claim(
            "The objective as the criterion is better than the lowest time to the first token for each request: more within it.",
            mean(NO_REBALANCE, attainment) > mean(MIN_TTFT, attainment),
        ),
        Conclusion::claim(
            format!(
                "As in the paper, cache-affinity has the highest p90 TTFT ({}).",
                of(p90, seconds)
            ),
            most(p90) == AFFINITY,
        ),
    ];
    for x in rows.xs(CONVERSATION) {
        let share = |system: &str| rows.mean(CONVERSATION, system, x, attainment);
        let p90 = |system: &str| rows.mean(CONVERSATION, system, x, p90);
        let hits = |system: &str| rows.mean(CONVERSATION, system, x, hits);
        conclusions.push(Conclusion::note(format!(
            "Rebalancing at {} requests/s: {} within 5 s against {} without, p90 TTFT {} against {}, cache hits {} against {}.",
            short(x),
            percent(share(WHOLE)),
            percent(share(NO_REBALANCE)),
            seconds(p90(WHOLE)),
            seconds(p90(NO_REBALANCE)),
            percent(hits(WHOLE)),
            percent(hits(NO_REBALANCE))
        )));
    }
    conclusions
}
