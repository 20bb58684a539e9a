//! DualMap, Figure 3: effective request capacity and goodput over the request rate; with them, over the same rates, the cache
//! hits and the evenness of the load (Figures 10 and 11), which say why.

use isotherm_report::chart::Scale;
use isotherm_report::number::{percent, short, times};

use super::document::{Document, Section, Table};
use super::dualmap::{
    BASELINES, CONVERSATION, DUAL_MAP, GOODPUT_SHARE, GROUPS, ISOTHERM, PUSHING, REPLICAS, SYSTEMS,
    TOOLS, goodput, goodput_shown, high_rates, over_rate,
};
use super::figure::{attainment, cv, hits};
use super::lab::Lab;
use super::paper::{Against, Stated, Unit};
use super::picture::{Axes, lines};
use super::rows::Rows;
use isotherm_report::Conclusion;

const SOURCE: &str = "DualMap, section 4.2, text on Figure 3";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let rows = over_rate(lab);
    let sections = GROUPS
        .iter()
        .map(|group| section(&rows, group))
        .collect::<anyhow::Result<_>>()?;
    Ok(Document {
        name: "dualmap-3",
        title: "DualMap, Figure 3: effective request capacity and goodput over the request rate"
            .into(),
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each; the paper: Qwen2.5-7B on one Ascend 910B4, so rates differ). Effective request capacity: \
             the share of requests with a first token within 5 s. Goodput: the highest rate at which that is {:.0} %, between two rates in proportion. {} {PUSHING}",
            GOODPUT_SHARE * 100.0,
            super::workloads::described(lab.effort())
        )],
        paper: GROUPS
            .iter()
            .flat_map(|group| paper(&rows, group))
            .collect(),
        findings: GROUPS
            .iter()
            .flat_map(|group| findings(&rows, group))
            .collect(),
        sections,
        rows,
    })
}

fn section(rows: &Rows, group: &str) -> anyhow::Result<Section> {
    let axes = |y, mark| Axes {
        x: "requests/s",
        y,
        scale: Scale::Linear,
        mark,
    };
    let chart = |title, explanation, axes: &Axes, figure| {
        lines((title, explanation), rows, (group, &SYSTEMS), axes, figure)
    };
    Ok(Section {
        title: group.to_owned(),
        key: SYSTEMS.map(String::from).into(),
        charts: vec![
            chart(
                "Effective request capacity (Figures 3a, 3b)",
                "Share of requests with a first token within 5 s. More is better.",
                &axes("share within 5 s", Some((GOODPUT_SHARE, "90 %"))),
                attainment,
            )?,
            chart(
                "Cache hits (Figure 10)",
                "Share of prompt tokens.",
                &axes("share", None),
                hits,
            )?,
            chart(
                "Evenness (Figure 11)",
                "Coefficient of variation of the replicas' pending prefill tokens. Less is more even.",
                &axes("CV", None),
                cv,
            )?,
        ],
        table: Some(goodputs(rows, group)),
        ..Section::default()
    })
}

fn goodputs(rows: &Rows, group: &str) -> Table {
    let rates = rows.xs(group);
    let heads = ["system".to_owned(), "goodput, requests/s".to_owned()];
    let line = |system: &&str| {
        let shares = rates
            .iter()
            .map(|&rate| percent(rows.mean(group, system, rate, attainment)));
        [(*system).to_owned(), goodput_shown(rows, group, system)]
            .into_iter()
            .chain(shares)
            .collect()
    };
    Table {
        heads: heads
            .into_iter()
            .chain(rates.iter().map(|rate| format!("{} /s", short(*rate))))
            .collect(),
        lines: SYSTEMS.iter().map(line).collect(),
    }
}

/// By how much DualMap is above the best baseline, as a share of it.
fn gain(rows: &Rows, group: &str, rate: f64) -> f64 {
    let best = BASELINES
        .iter()
        .map(|system| rows.mean(group, system, rate, attainment))
        .fold(0.0, f64::max);
    rows.mean(group, DUAL_MAP, rate, attainment) / best - 1.0
}

fn best_goodput(rows: &Rows, group: &str) -> (&'static str, f64) {
    BASELINES
        .into_iter()
        .map(|system| (system, goodput(rows, group, system)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or((DUAL_MAP, f64::NAN))
}

fn paper(rows: &Rows, group: &str) -> Vec<Against> {
    let share = |low, high| Stated::range(low, high, Unit::Share, SOURCE);
    let (capacity, good) = match group {
        TOOLS => (Stated::share(1.25, SOURCE), share(0.167, 0.48)),
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
        Against::one(
            format!("{group}: capacity above the best baseline's, {up_to}"),
            capacity,
            most,
        ),
        Against::one(
            format!("{group}: goodput above the best baseline's"),
            good,
            goodput(rows, group, DUAL_MAP) / best_goodput(rows, group).1 - 1.0,
        ),
    ]
}

fn findings(rows: &Rows, group: &str) -> Vec<Conclusion> {
    let (best, theirs) = best_goodput(rows, group);
    let ours = goodput(rows, group, DUAL_MAP);
    let mut findings = vec![
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
        findings.push(Conclusion::note(format!(
            "{group} at {} requests/s, within the SLO: {}.",
            short(rate),
            shares.join(", ")
        )));
    }
    findings
}
