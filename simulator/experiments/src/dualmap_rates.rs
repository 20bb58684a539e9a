//! DualMap, Figures 1, 3 and 4: three views of the same runs over the request rate.
//!
//! Balance is the coefficient of variation of the replicas' pending prefill tokens (the paper's equation 1), sampled once a
//! second, mean over the samples with pending tokens.

use isotherm_report::number::{percent, short, times};
use isotherm_report::{Conclusion, Section, Table};

use crate::context::Context;
use crate::document::Document;
use crate::dualmap::{
    AFFINITY, BASELINES, CONVERSATION, DUAL_MAP, GOODPUT_SHARE, GROUPS, ISOTHERM, LEAST_LOADED,
    PUSHING, REPLICAS, SYSTEMS, Sweep, TOOLS, over_rate,
};
use crate::explain;
use crate::figures::{ATTAINMENT, CV, E2E_P50, E2E_P90, Figure, HITS, P50, P90};
use crate::paper::{PaperComparison, Source};
use crate::rows::{Panel, Rows};
use crate::workloads::described;

const FIGURE_1: Source = Source("DualMap, section 2.2, text on Figure 1");
const FIGURE_3: Source = Source("DualMap, section 4.2, text on Figure 3");
const FIGURE_4: Source = Source("DualMap, section 4.2, text on Figure 4");

fn sweeps(rows: &Rows) -> [Sweep<'_>; 2] {
    GROUPS.map(|group| Sweep::new(rows, group))
}

fn lines(sweep: Sweep<'_>, figures: &[Figure]) -> Section {
    let rows = sweep.rows.filtered(|row| row.group == sweep.group);
    Section::detail(sweep.group).table(rows.table("requests/s", figures))
}

/// Figure 1: cache hits against load balance.
pub(crate) fn figure_1(context: &Context) -> Document {
    let swept = over_rate(context);
    // The fleet is loaded and no policy is past all hope: the last rate before the best baseline fails.
    let panels = sweeps(swept).map(|sweep| {
        let first_high = sweep.high_rates().first().copied().unwrap_or(0.0);
        let before = sweep.rates().into_iter().rfind(|x| *x < first_high);
        sweep.at(before.unwrap_or(first_high))
    });
    let [conversation, tools] = panels;
    let is_shown = |group: &str, x| {
        panels
            .iter()
            .any(|panel| (panel.group, panel.x) == (group, x))
    };
    let rows = swept.filtered(|row| is_shown(&row.group, row.x));
    Document {
        about: vec![format!(
            "8 replicas (Llama-3.1-8B on two A100 each), at the highest rate of dualmap-3 that the best of the paper's baselines still serves within the SLO: \
             {} requests/s of {CONVERSATION}, {} of {TOOLS}. {PUSHING}",
            short(conversation.x),
            short(tools.x)
        )],
        paper: vec![FIGURE_1.times(
            "Conversation: cache hits of Cache Affinity over Least Loaded",
            (1.21, 1.21),
            &[conversation.ratio(AFFINITY, LEAST_LOADED, HITS)],
        )],
        conclusions: panels.into_iter().flat_map(hits_and_balance).collect(),
        sections: vec![
            Section::detail("Hits and balance").table(explain::table(&rows, "requests/s")),
        ],
        rows,
        ..Document::default()
    }
}

fn hits_and_balance(panel: Panel<'_>) -> [Conclusion; 3] {
    let group = panel.group;
    let hits = |system| panel.mean(system, HITS);
    let cv = |system| panel.mean(system, CV);
    let (low, high) = (hits(LEAST_LOADED), hits(AFFINITY));
    let mut others = BASELINES
        .into_iter()
        .filter(|system| ![AFFINITY, LEAST_LOADED].contains(system));
    [
        Conclusion::claim(
            format!(
                "{group}: Cache Affinity hits more than Least Loaded ({} against {}, {}) and is less even (CV {} against {}).",
                percent(high),
                percent(low),
                times(high / low),
                short(cv(AFFINITY)),
                short(cv(LEAST_LOADED))
            ),
            high > low && cv(AFFINITY) > cv(LEAST_LOADED),
        ),
        Conclusion::claim(
            format!("{group}: Min TTFT and Preble hit between the two."),
            others.all(|system| (low..=high).contains(&hits(system))),
        ),
        Conclusion::note(format!(
            "{group}: DualMap hits {} with a CV of {}: {} of what Cache Affinity hits.",
            panel.shown(DUAL_MAP, HITS),
            panel.shown(DUAL_MAP, CV),
            percent(hits(DUAL_MAP) / high)
        )),
    ]
}

/// Figure 3: effective request capacity and goodput; the cache hits and the evenness of the load (Figures 10 and 11)
/// explain them.
pub(crate) fn figure_3(context: &Context) -> Document {
    let rows = over_rate(context);
    let section = |sweep| lines(sweep, &[ATTAINMENT, HITS, CV]).table(goodputs(sweep));
    Document {
        about: vec![format!(
            "{REPLICAS} replicas (Llama-3.1-8B on two A100 each; the paper: Qwen2.5-7B on one Ascend 910B4, so rates differ). Effective request capacity: \
             the share of requests with a first token within 5 s. Goodput: the highest rate at which that is {:.0} %, between two rates in proportion. {} {PUSHING}",
            GOODPUT_SHARE * 100.0,
            described(&context.effort)
        )],
        paper: sweeps(rows).into_iter().flat_map(gains).collect(),
        conclusions: sweeps(rows).into_iter().flat_map(capacity).collect(),
        sections: sweeps(rows).map(section).into(),
        rows: rows.clone(),
        ..Document::default()
    }
}

fn goodputs(sweep: Sweep<'_>) -> Table {
    let rates = sweep.rates();
    let names = rates.iter().map(|rate| format!("{} /s", short(*rate)));
    let columns = ["system", "goodput, requests/s"].map(String::from);
    Table::new(columns.into_iter().chain(names)).with_rows(SYSTEMS.map(|system| {
        let share = |rate: &f64| sweep.at(*rate).shown(system, ATTAINMENT);
        let head = [system.to_owned(), sweep.goodput_shown(system)];
        head.into_iter()
            .chain(rates.iter().map(share))
            .collect::<Vec<_>>()
    }))
}

/// Relative gains of DualMap over the best baseline.
fn gains(sweep: Sweep<'_>) -> [PaperComparison; 2] {
    let group = sweep.group;
    let (capacity, goodput, up_to) = match group {
        TOOLS => ((1.25, 1.25), (0.167, 0.48), "at its best rate"),
        _ => ((0.406, 0.8), (0.143, 0.4), "at high rates"),
    };
    let gain = |rate| {
        let best = sweep.best_attainment(&BASELINES, rate);
        sweep.at(rate).mean(DUAL_MAP, ATTAINMENT) / best - 1.0
    };
    let most = sweep
        .high_rates()
        .into_iter()
        .map(gain)
        .fold(f64::NAN, f64::max);
    let (_, best) = sweep.best_goodput(&BASELINES);
    [
        FIGURE_3.share(
            format!("{group}: capacity above the best baseline's, {up_to}"),
            capacity,
            &[most],
        ),
        FIGURE_3.share(
            format!("{group}: goodput above the best baseline's"),
            goodput,
            &[sweep.goodput(DUAL_MAP) / best - 1.0],
        ),
    ]
}

fn capacity(sweep: Sweep<'_>) -> Vec<Conclusion> {
    let group = sweep.group;
    let (best, theirs) = sweep.best_goodput(&BASELINES);
    let ours = sweep.goodput(DUAL_MAP);
    let mut conclusions = vec![
        Conclusion::claim(
            format!(
                "{group}: DualMap's goodput is at least that of the best baseline, {best}: {} against {} requests/s.",
                sweep.goodput_shown(DUAL_MAP),
                sweep.goodput_shown(best)
            ),
            theirs > 0.0 && ours >= theirs,
        ),
        Conclusion::note(format!(
            "{group}: isotherm's goodput is {} requests/s, {} that of DualMap.",
            sweep.goodput_shown(ISOTHERM),
            times(sweep.goodput(ISOTHERM) / ours)
        )),
    ];
    conclusions.extend(sweep.high_rates().into_iter().map(|rate| {
        Conclusion::note(format!(
            "{group} at {} requests/s, within the SLO: {}.",
            short(rate),
            sweep.at(rate).list(&SYSTEMS, ATTAINMENT)
        ))
    }));
    conclusions
}

/// Figure 4: time to first token and end-to-end time.
pub(crate) fn figure_4(context: &Context) -> Document {
    let rows = over_rate(context);
    let section = |sweep: Sweep<'_>| {
        let of_group = rows.filtered(|row| row.group == sweep.group);
        lines(sweep, &[P50, P90, E2E_P50, E2E_P90]).table(explain::table(&of_group, "requests/s"))
    };
    let high = |sweep: Sweep<'_>| -> Vec<Conclusion> {
        let rates = sweep.high_rates().into_iter();
        rates.map(|rate| times_at(sweep.at(rate))).collect()
    };
    Document {
        about: vec![
            "The runs of dualmap-3: 8 replicas (Llama-3.1-8B on two A100 each), both workloads. High rates are those at which \
             the best of the paper's baselines has less than 90 % within the SLO."
                .into(),
            PUSHING.into(),
        ],
        paper: sweeps(rows).into_iter().flat_map(savings).collect(),
        conclusions: sweeps(rows).into_iter().flat_map(high).collect(),
        sections: sweeps(rows).map(section).into(),
        rows: rows.clone(),
        ..Document::default()
    }
}

/// Relative savings of DualMap against the best baseline at high rates.
fn savings(sweep: Sweep<'_>) -> [PaperComparison; 2] {
    [("p50", P50, (0.554, 0.974)), ("p90", P90, (0.823, 0.97))].map(|(name, figure, range)| {
        let saving = |rate| {
            let mean = |system| sweep.at(rate).mean(system, figure);
            1.0 - mean(DUAL_MAP)
                / BASELINES
                    .map(mean)
                    .into_iter()
                    .fold(f64::INFINITY, f64::min)
        };
        let savings: Vec<f64> = sweep.high_rates().into_iter().map(saving).collect();
        let group = sweep.group;
        FIGURE_4.share(
            format!("{group}, high rates: {name} TTFT less than the best baseline's by"),
            range,
            &savings,
        )
    })
}

fn times_at(panel: Panel<'_>) -> Conclusion {
    let best = panel.best(BASELINES, P90).unwrap_or(DUAL_MAP);
    let shown = |system, figure| panel.shown(system, figure);
    Conclusion::note(format!(
        "{} at {} requests/s: p90 TTFT {} s with DualMap, {} s with {best}, the best baseline there. Cache hits {} against {}, CV of the load {} against {}.",
        panel.group,
        short(panel.x),
        shown(DUAL_MAP, P90),
        shown(best, P90),
        shown(DUAL_MAP, HITS),
        shown(best, HITS),
        shown(DUAL_MAP, CV),
        shown(best, CV)
    ))
}
