//! Conclusions from the ratios.

use isotherm_report::number::{percent, short, times};

use super::ranking::{Comparison, GOALS, Rank, comparisons};
use super::{ORACLE, OURS};
use crate::rows::{Row, Rows};
use isotherm_report::Conclusion;

/// As good as the best other system, but for what seeds differ by.
const RATIO_MIN: f64 = 0.98;

pub(crate) fn conclusions(rows: &Rows, groups: &[&str], others: &[String]) -> Vec<Conclusion> {
    let all: Vec<(&str, Vec<Comparison>)> = groups
        .iter()
        .map(|group| (*group, comparisons(rows, group, others)))
        .collect();
    let mut behind = Vec::new();
    for (group, comparisons) in &all {
        for (goal, comparison) in GOALS.iter().zip(comparisons) {
            if comparison.ratio < RATIO_MIN || comparison.ratio.is_nan() {
                behind.push(format!(
                    "{group}, {}: {} of {}",
                    goal.name,
                    times(comparison.ratio),
                    comparison.against
                ));
            }
        }
    }
    let held = all.len() * GOALS.len() - behind.len();
    // Better on some figure, and this on all.
    let better_and = |holds: fn(&Comparison) -> bool| -> Vec<&str> {
        all.iter()
            .filter(|(_, comparisons)| {
                comparisons.iter().all(holds)
                    && comparisons
                        .iter()
                        .any(|comparison| comparison.rank == Rank::Better)
            })
            .map(|(group, _)| *group)
            .collect()
    };
    let better =
        better_and(|comparison| comparison.rank != Rank::Behind && comparison.ratio >= RATIO_MIN);
    let nearly = better_and(|comparison| comparison.ratio >= RATIO_MIN);
    let on_all = better_and(|comparison| comparison.rank == Rank::Better);
    let mut conclusions = vec![
        Conclusion::claim(
            format!(
                "isotherm has at least {RATIO_MIN} of the best other system on every workload and every figure: {held} of {}.{}",
                all.len() * GOALS.len(),
                if behind.is_empty() {
                    String::new()
                } else {
                    format!(" Not: {}.", behind.join("; "))
                }
            ),
            behind.is_empty(),
        ),
        Conclusion::claim(
            format!(
                "On at least half of the workloads it is strictly better than every other policy on some figure and behind none of them on any, as far as seeds can tell: {} of {} ({}).",
                better.len(),
                all.len(),
                better.join(", ")
            ),
            better.len() * 2 >= all.len(),
        ),
        Conclusion::note(format!(
            "Strictly better on some figure, and at least {RATIO_MIN} on the others: {} of {} ({}).",
            nearly.len(),
            all.len(),
            nearly.join(", ")
        )),
        Conclusion::note(format!(
            "Strictly better on all three figures at once: {} of {} ({}).",
            on_all.len(),
            all.len(),
            on_all.join(", ")
        )),
    ];
    let refused: Vec<&str> = groups
        .iter()
        .filter(|group| rows.mean(group, OURS, 0.0, refused) > 0.0)
        .copied()
        .collect();
    if !refused.is_empty() {
        conclusions.push(Conclusion::note(format!(
            "Times are of answered requests, and isotherm refused some on {}: see the tables.",
            refused.join(", ")
        )));
    }
    for (group, comparisons) in &all {
        let said: Vec<String> = GOALS
            .iter()
            .zip(comparisons)
            .map(|(goal, comparison)| {
                format!(
                    "{} {} that of {} (seeds {} to {})",
                    goal.name,
                    times(comparison.ratio),
                    comparison.against,
                    short(comparison.spread.min),
                    short(comparison.spread.max)
                )
            })
            .collect();
        let oracle = GOALS
            .iter()
            .map(|goal| {
                times(goal.ratio(goal.mean(rows, group, OURS), goal.mean(rows, group, ORACLE)))
            })
            .collect::<Vec<_>>()
            .join(", ");
        let hits =
            |system: &str| percent(rows.mean(group, system, 0.0, |row| row.summary.hit_ratio));
        conclusions.push(Conclusion::note(format!(
            "{group}: {}. Against the oracle: {oracle}. Cache hits {}, the oracle's {}.",
            said.join("; "),
            hits(OURS),
            hits(ORACLE)
        )));
    }
    conclusions
}

#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn refused(row: &Row) -> f64 {
    row.summary.failed as f64
}
