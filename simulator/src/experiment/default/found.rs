//! What the ratios say.

use isotherm_report::number::{percent, short, times};

use super::super::rows::{Row, Rows};
use super::verdict::{GOALS, Standing, Verdict, verdicts};
use super::{ORACLE, OURS};
use isotherm_report::Conclusion;

/// As good as the best other system, but for what seeds differ by.
const RATIO_MIN: f64 = 0.98;

pub(super) fn findings(rows: &Rows, groups: &[&str], others: &[String]) -> Vec<Conclusion> {
    let all: Vec<(&str, Vec<Verdict>)> = groups
        .iter()
        .map(|group| (*group, verdicts(rows, group, others)))
        .collect();
    let mut behind = Vec::new();
    for (group, verdicts) in &all {
        for (goal, verdict) in GOALS.iter().zip(verdicts) {
            if verdict.ratio < RATIO_MIN || verdict.ratio.is_nan() {
                behind.push(format!(
                    "{group}, {}: {} of {}",
                    goal.name,
                    times(verdict.ratio),
                    verdict.against
                ));
            }
        }
    }
    let held = all.len() * GOALS.len() - behind.len();
    // Better on some figure, and this on all.
    let better_and = |holds: fn(&Verdict) -> bool| -> Vec<&str> {
        all.iter()
            .filter(|(_, verdicts)| {
                verdicts.iter().all(holds)
                    && verdicts
                        .iter()
                        .any(|verdict| verdict.standing == Standing::Better)
            })
            .map(|(group, _)| *group)
            .collect()
    };
    let better =
        better_and(|verdict| verdict.standing != Standing::Behind && verdict.ratio >= RATIO_MIN);
    let nearly = better_and(|verdict| verdict.ratio >= RATIO_MIN);
    let on_all = better_and(|verdict| verdict.standing == Standing::Better);
    let mut findings = vec![
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
        findings.push(Conclusion::note(format!(
            "Times are of answered requests, and isotherm refused some on {}: see the tables.",
            refused.join(", ")
        )));
    }
    for (group, verdicts) in &all {
        let said: Vec<String> = GOALS
            .iter()
            .zip(verdicts)
            .map(|(goal, verdict)| {
                format!(
                    "{} {} that of {} (seeds {} to {})",
                    goal.name,
                    times(verdict.ratio),
                    verdict.against,
                    short(verdict.spread.min),
                    short(verdict.spread.max)
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
        findings.push(Conclusion::note(format!(
            "{group}: {}. Against the oracle: {oracle}. Cache hits {}, the oracle's {}.",
            said.join("; "),
            hits(OURS),
            hits(ORACLE)
        )));
    }
    findings
}

#[expect(clippy::cast_precision_loss, reason = "a number of requests")]
fn refused(row: &Row) -> f64 {
    row.summary.failed as f64
}
