//! DualMap, Figure 5: which of its parts is good for what.
//!
//! Five configurations on the conversations, as in the paper: one of the two candidates by cache, by load, by the lowest
//! time to the first token, or by the objective (section 3.2), and the last of them with rebalancing (section 3.3). The
//! paper does not say at which rate; shown are rates from plenty to too much, and the figures beside the paper's are those
//! of the highest rate at which some configuration still serves 90 % within the objective: the one where a choice counts.

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short};
use isotherm_router::{Ablation, CandidateRule};

use super::document::{Document, Section, Table};
use super::dualmap::{
    CONVERSATION, DUAL_MAP, GOODPUT_SHARE, REPLICAS, balancing, draw, goodput_shown, setup,
};
use super::figure::{attainment, cv, hits, p50, p90};
use super::lab::{Case, Lab};
use super::paper::{Against, Stated};
use super::picture::{Axes, lines};
use super::rows::{Row, Rows};
use crate::Setup;
use isotherm_report::Conclusion;

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
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let mut cases = Vec::new();
    for rate in lab.points(&RATES) {
        for system in SYSTEMS {
            cases.push(case(lab, system, rate));
        }
    }
    let rows = lab.run(SEEDS, &cases);
    let rate = telling_rate(&rows);
    Ok(Document {
        name: "dualmap-5",
        title: "DualMap, Figure 5: its parts switched off".into(),
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each), conversations, pending requests wait in the router. All five hash the prefix to the same two \
             candidates. {}",
            super::workloads::described(lab.effort())
        )],
        paper: paper(&rows, rate),
        findings: findings(&rows, rate),
        sections: vec![section(&rows, rate)?],
        rows,
    })
}

fn case(lab: &Lab, system: &str, rate: f64) -> Case {
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
    Case {
        group: CONVERSATION.to_owned(),
        system: system.to_owned(),
        x: rate,
        setup: Setup {
            ablation: Some(ablation),
            ..setup(REPLICAS, balancing(DUAL_MAP))
        },
        draw: draw(lab, CONVERSATION, rate),
    }
}

/// The highest rate at which the best configuration serves enough within the objective; else the lowest.
fn telling_rate(rows: &Rows) -> f64 {
    let best = |x: &f64| {
        let shares = SYSTEMS.map(|system| rows.mean(CONVERSATION, system, *x, attainment));
        shares.into_iter().fold(0.0, f64::max)
    };
    let xs = rows.xs(CONVERSATION);
    let enough = xs.iter().rfind(|x| best(x) >= GOODPUT_SHARE);
    enough.or(xs.first()).copied().unwrap_or(0.0)
}

fn seconds(value: f64) -> String {
    format!("{} s", short(value))
}

fn section(rows: &Rows, rate: f64) -> anyhow::Result<Section> {
    let chart = |title, explanation, y, scale, figure| {
        let axes = Axes {
            x: "requests/s",
            y,
            scale,
            mark: None,
        };
        lines(
            (title, explanation),
            rows,
            (CONVERSATION, &SYSTEMS),
            &axes,
            figure,
        )
    };
    Ok(Section {
        title: "Five configurations over the rate".into(),
        text: format!("The table is of {} requests/s.", short(rate)),
        key: SYSTEMS.map(String::from).into(),
        charts: vec![
            chart(
                "Median TTFT (Figure 5a)",
                "Logarithmic. Less is better.",
                "seconds",
                Scale::Log,
                p50,
            )?,
            chart(
                "90th percentile of TTFT (Figure 5b)",
                "Logarithmic. Less is better.",
                "seconds",
                Scale::Log,
                p90,
            )?,
            chart(
                "Cache hits (Figure 5c)",
                "Share of prompt tokens found in caches.",
                "share",
                Scale::Linear,
                hits,
            )?,
            chart(
                "Evenness (Figure 5d)",
                "Coefficient of variation of pending prefill tokens. Less is more even.",
                "CV",
                Scale::Linear,
                cv,
            )?,
            chart(
                "Effective request capacity",
                "Share of requests with a first token within 5 s.",
                "share within 5 s",
                Scale::Linear,
                attainment,
            )?,
        ],
        table: Some(table(rows, rate)),
    })
}

fn table(rows: &Rows, rate: f64) -> Table {
    let heads = [
        "configuration",
        "goodput, requests/s",
        "within 5 s",
        "TTFT p50",
        "TTFT p90",
        "cache hits",
        "CV",
    ];
    let line = |system: &str| {
        let mean = |figure: fn(&Row) -> f64| rows.mean(CONVERSATION, system, rate, figure);
        vec![
            system.to_owned(),
            goodput_shown(rows, CONVERSATION, system),
            percent(mean(attainment)),
            seconds(mean(p50)),
            seconds(mean(p90)),
            percent(mean(hits)),
            short(mean(cv)),
        ]
    };
    Table {
        heads: heads.map(String::from).into(),
        lines: SYSTEMS.map(line).into(),
    }
}

/// By how much the first has less than the second, as a share of it.
fn less(rows: &Rows, rate: f64, pair: (&str, &str), figure: fn(&Row) -> f64) -> f64 {
    1.0 - rows.ratio(CONVERSATION, pair, rate, figure)
}

fn paper(rows: &Rows, rate: f64) -> Vec<Against> {
    let less = |pair, figure| less(rows, rate, pair, figure);
    vec![
        Against::one(
            "median TTFT: no-rebalance below min-ttft, by",
            Stated::share(0.235, SOURCE),
            less((NO_REBALANCE, MIN_TTFT), p50),
        ),
        Against::one(
            "p90 TTFT: no-rebalance below min-ttft, by",
            Stated::share(0.185, SOURCE),
            less((NO_REBALANCE, MIN_TTFT), p90),
        ),
        Against::one(
            "p90 TTFT: DualMap below no-rebalance, by",
            Stated::share(0.113, SOURCE),
            less((WHOLE, NO_REBALANCE), p90),
        ),
    ]
}

fn findings(rows: &Rows, rate: f64) -> Vec<Conclusion> {
    let mean =
        |system: &str, figure: fn(&Row) -> f64| rows.mean(CONVERSATION, system, rate, figure);
    let of = |figure: fn(&Row) -> f64, format: fn(f64) -> String| {
        let all = SYSTEMS.map(|system| format!("{system} {}", format(mean(system, figure))));
        all.join(", ")
    };
    let most = |figure: fn(&Row) -> f64| {
        SYSTEMS
            .into_iter()
            .max_by(|a, b| mean(a, figure).total_cmp(&mean(b, figure)))
            .unwrap_or(WHOLE)
    };
    let mut findings = vec![
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
        findings.push(Conclusion::note(format!(
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
    findings
}
