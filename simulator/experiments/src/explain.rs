//! Differences between two systems, as far as the data explain them.

use isotherm_report::Table;
use isotherm_report::number::times;

use crate::figures::{
    ATTAINMENT, BUSY, CV, E2E_P50, ENGINE_WAITING, FAILED, Figure, GOODPUTS, HITS, MOST_OVER_MEAN,
    P50, P90, P99, PREEMPTIONS, REQUESTS, ROUTER_WAITING, TOKENS, WAITS_BESIDE_IDLE,
};
use crate::rows::{Panel, Rows};

/// Replicas that compute for a smaller share of the time do not limit the clients.
const BUSY_SHARE: f64 = 0.9;

/// Figures of two systems, side by side.
pub(crate) fn beside(panel: Panel<'_>, ours: &str, theirs: &str) -> String {
    let both = |figure: Figure| {
        let (ours, theirs) = (panel.shown(ours, figure), panel.shown(theirs, figure));
        format!("{ours} against {theirs}")
    };
    let mut text = format!(
        "{}, {ours} against {theirs}: throughput {}, p90 TTFT {}. Cache hits {}; requests waited in an engine while another \
         had none waiting for {} of the time; {} requests waited in an engine and {} in routers on average; replicas computed {} \
         of the time; {} preemptions.",
        panel.group,
        times(panel.ratio(ours, theirs, TOKENS)),
        times(panel.ratio(ours, theirs, P90)),
        both(HITS),
        both(WAITS_BESIDE_IDLE),
        both(ENGINE_WAITING),
        both(ROUTER_WAITING),
        both(BUSY),
        both(PREEMPTIONS),
    );
    let is_idle = |system| panel.mean(system, BUSY) < BUSY_SHARE;
    if is_idle(ours) && is_idle(theirs) {
        text.push_str(
            " Neither fleet is busy all the time: these clients, who wait for each answer, set the pace, and throughput can \
             differ only as their waits do.",
        );
    }
    text
}

/// The figures that explain, for every cell, in the order of the rows.
pub(crate) fn table(rows: &Rows, varied: &str) -> Table {
    let [goodput_1s, goodput_2s, goodput_5s, goodput_10s] = GOODPUTS;
    let figures = [
        REQUESTS,
        FAILED,
        TOKENS,
        HITS,
        P50,
        P90,
        P99,
        E2E_P50,
        ATTAINMENT,
        goodput_1s,
        goodput_2s,
        goodput_5s,
        goodput_10s,
        CV,
        MOST_OVER_MEAN,
        WAITS_BESIDE_IDLE,
        ROUTER_WAITING,
        BUSY,
    ];
    let [tokens, p90] = [TOKENS, P90].map(|figure| figure.column());
    let shown = ["group", varied, "system", &tokens, HITS.name, &p90];
    rows.table(varied, &figures).headline(&shown, |_| true)
}
