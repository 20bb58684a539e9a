//! DualMap, Figure 3: effective request capacity and goodput over the request rate; with them, over the same rates, the cache
//! hits and the evenness of the load (Figures 10 and 11), which say why.

use isotherm_report::number::{percent, short, times};

use crate::charts::{Axes, Charts};
use crate::context::Context;
use crate::document::Document;
use crate::dualmap::{
    BASELINES, CONVERSATION, DUAL_MAP, GOODPUT_SHARE, GROUPS, ISOTHERM, PUSHING, REPLICAS, SYSTEMS,
    TOOLS, best_attainment, best_goodput, goodput, goodput_shown, high_rates, over_rate,
};
use crate::figures::{Figure, attainment, cv, hits};
use crate::paper::{PaperComparison, PaperFigure, Unit};
use crate::rows::Rows;
use isotherm_report::{Conclusion, Section, Table};

const SOURCE: &str = "DualMap, section 4.2, text on Figure 3";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let rows = over_rate(context);
    Document {
        title: "DualMap, Figure 3: effective request capacity and goodput over the request rate"
            .into(),
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each; the paper: Qwen2.5-7B on one Ascend 910B4, so rates differ). Effective request capacity: \
             the share of requests with a first token within 5 s. Goodput: the highest rate at which that is {:.0} %, between two rates in proportion. {} {PUSHING}",
            GOODPUT_SHARE * 100.0,
            crate::workloads::described(context.effort())
        )],
        paper: GROUPS
            .iter()
            .flat_map(|group| paper(&rows, group))
            .collect(),
        conclusions: GROUPS
            .iter()
            .flat_map(|group| conclusions(&rows, group))
            .collect(),
        sections: GROUPS.map(|group| section(&rows, group)).into(),
        rows,
        ..Document::default()
    }
}

fn section(rows: &Rows, group: &str) -> Section {
    let charts = Charts {
        rows,
        systems: &SYSTEMS,
    };
    let chart = |title, caption, y, reference, figure| {
        let axes = Axes {
            x: "requests/s",
            y,
            reference,
            ..Axes::default()
        };
        charts.lines((title, caption), group, axes, figure)
    };
    Section::detail(group)
        .charts(vec![
            chart(
                "Effective request capacity (Figures 3a, 3b)",
                "Share of requests with a first token within 5 s. More is better.",
                "share within 5 s",
                Some((GOODPUT_SHARE, "90 %")),
                attainment as Figure,
            ),
            chart("Cache hits (Figure 10)", "Share of prompt tokens.", "share", None, hits),
            chart(
                "Evenness (Figure 11)",
                "Coefficient of variation of the replicas' pending prefill tokens. Less is more even.",
                "CV",
                None,
                cv,
            ),
        ])
        .table(goodputs(rows, group))
}

fn goodputs(rows: &Rows, group: &str) -> Table {
    let rates = rows.xs(group);
    let names = rates.iter().map(|rate| format!("{} /s", short(*rate)));
    let columns = ["system", "goodput, requests/s"].map(String::from);
    Table::new(columns.into_iter().chain(names)).with_rows(SYSTEMS.map(|system| {
        let share = |&rate: &f64| percent(rows.mean(group, system, rate, attainment));
        let head = [system.to_owned(), goodput_shown(rows, group, system)];
        head.into_iter()
            .chain(rates.iter().map(share))
            .collect::<Vec<_>>()
    }))
}

/// Relative gain of DualMap over the best baseline.
fn gain(rows: &Rows, group: &str, rate: f64) -> f64 {
    let best = best_attainment(rows, group, &BASELINES, rate);
    rows.mean(group, DUAL_MAP, rate, attainment) / best - 1.0
}

fn paper(rows: &Rows, group: &str) -> Vec<PaperComparison> {
    let share = |low, high| PaperFigure::range(low, high, Unit::Share, SOURCE);
    let (capacity, good) = match group {
        TOOLS => (PaperFigure::share(1.25, SOURCE), share(0.167, 0.48)),
        _ => (share(0.406, 0.8), share(0.143, 0.4)),
    };
    let gains: Vec<f64> = high_rates(rows, group)
        .into_iter()
        .map(|rate| gain(rows, group, rate))
        .collect();
    let most = gains.iter().copied().fold(f64::NAN, f64::max);
    let up_to = if group == CONVERSATION {
        "at high rates"
    } else {
        "at its best rate"
    };
    vec![
        PaperComparison::one(
            format!("{group}: capacity above the best baseline's, {up_to}"),
            capacity,
            most,
        ),
        PaperComparison::one(
            format!("{group}: goodput above the best baseline's"),
            good,
            goodput(rows, group, DUAL_MAP) / best_goodput(rows, group, &BASELINES).1 - 1.0,
        ),
    ]
}

fn conclusions(rows: &Rows, group: &str) -> Vec<Conclusion> {
    let (best, theirs) = best_goodput(rows, group, &BASELINES);
    let ours = goodput(rows, group, DUAL_MAP);
    let mut conclusions = vec![
        Conclusion::claim(
            format!(
                "{group}: DualMap's goodput is at least that of the best baseline, {best}: {} against {} requests/s.",
                goodput_shown(rows, group, DUAL_MAP),
                goodput_shown(rows, group, best)
            ),
            theirs > 0.0 && ours >= theirs,
        ),
        Conclusion::note(format!(
            "{group}: isotherm's goodput is {} requests/s, {} that of DualMap.",
            goodput_shown(rows, group, ISOTHERM),
            times(goodput(rows, group, ISOTHERM) / ours)
        )),
    ];
    for rate in high_rates(rows, group) {
        let shares: Vec<String> = SYSTEMS
            .iter()
            .map(|system| {
                format!(
                    "{system} {}",
                    percent(rows.mean(group, system, rate, attainment))
                )
            })
            .collect();
        conclusions.push(Conclusion::note(format!(
            "{group} at {} requests/s, within the SLO: {}.",
            short(rate),
            shares.join(", ")
        )));
    }
    conclusions
}
