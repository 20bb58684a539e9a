//! Conclusions that several scaling experiments share.

use isotherm_report::Conclusion;
use isotherm_report::number::{short, times};

use super::figures::{HOURS, P95};
use super::strategies::{CHIRON, LT_I, LT_U, LT_UA, PAPER, REACTIVE};
use crate::rows::Panel;

/// Relative difference that counts as no worse.
pub(crate) const SAME: f64 = 1.05;

/// LT strategies use fewer hours than Reactive, and Reactive fewer than Chiron.
pub(crate) fn order(panel: Panel<'_>) -> Conclusion {
    let hours = |system: &str| panel.mean(system, HOURS);
    let below = [LT_I, LT_U, LT_UA]
        .iter()
        .all(|system| hours(system) < hours(REACTIVE));
    Conclusion::claim(
        "LT-I, LT-U and LT-UA use fewer instance hours than Reactive, and Reactive fewer than Chiron",
        below && hours(REACTIVE) < hours(CHIRON),
    )
    .in_case(panel.group)
    .measured(panel.list(&PAPER, HOURS))
}

/// Isotherm uses at most the hours of a strategy, at no worse p95.
pub(crate) fn at_most(panel: Panel<'_>, ours: &str, theirs: &str) -> Conclusion {
    let hours = panel.ratio(ours, theirs, HOURS);
    let p95 = panel.ratio(ours, theirs, P95);
    Conclusion::claim(
        format!("{ours} uses at most the hours of {theirs}, at no worse p95 (within 5 %)"),
        hours <= 1.0 && p95 <= SAME,
    )
    .in_case(panel.group)
    .measured(format!(
        "hours {} ({} against {}), p95 TTFT {} s against {} s",
        times(hours),
        panel.shown(ours, HOURS),
        panel.shown(theirs, HOURS),
        panel.shown(ours, P95),
        panel.shown(theirs, P95),
    ))
}

/// Isotherm uses at most the hours of the best other strategy whose p95 is no worse than Isotherm's.
pub(crate) fn best_at_no_worse_p95(panel: Panel<'_>, system: &str) -> Conclusion {
    let ours = panel.mean(system, P95);
    let no_worse = PAPER
        .into_iter()
        .filter(|theirs| panel.mean(theirs, P95) <= ours * SAME);
    let Some(best) = panel.best(no_worse, HOURS) else {
        let text = format!("{system} has the least p95 of all");
        let claim = Conclusion::claim(text, true).in_case(panel.group);
        return claim.measured(format!(
            "{}; hours: {}, {system} {}",
            panel.list(&PAPER, P95),
            panel.list(&PAPER, HOURS),
            panel.shown(system, HOURS)
        ));
    };
    let hours = panel.ratio(system, best, HOURS);
    Conclusion::claim(
        format!("{system} uses at most the hours of every strategy with no worse p95"),
        hours <= 1.0,
    )
    .in_case(panel.group)
    .measured(format!(
        "{} of {best}: {} hours against {}, p95 TTFT {} s against {} s",
        times(hours),
        short(panel.mean(system, HOURS)),
        short(panel.mean(best, HOURS)),
        panel.shown(system, P95),
        panel.shown(best, P95),
    ))
}
