//! Conclusions from the ratios.

use isotherm_report::Conclusion;
use isotherm_report::number::{short, times};

use super::ranking::{Comparison, GOALS, Rank, comparisons, mean_ratio};
use super::{ORACLE, OURS};
use crate::figures::{FAILED, HITS};
use crate::rows::{Panel, Rows};

/// As good as the best other system, but for what seeds differ by.
const RATIO_MIN: f64 = 0.98;

/// A group and the comparison of each goal.
type GroupResult<'a> = (&'a str, Vec<Comparison>);

pub(crate) fn conclusions(rows: &Rows, groups: &[&str], others: &[&str]) -> Vec<Conclusion> {
    let results = groups
        .iter()
        .map(|group| (*group, comparisons(rows.at(group, 0.0), others)));
    let results: Vec<GroupResult<'_>> = results.collect();
    let is_refused = |group: &&str| rows.at(group, 0.0).mean(OURS, FAILED) > 0.0;
    let refused: Vec<&str> = groups.iter().copied().filter(is_refused).collect();
    let refused = (!refused.is_empty()).then(|| {
        Conclusion::note(format!(
            "isotherm refused requests on {}; each counts as an infinite time.",
            refused.join(", ")
        ))
    });
    let notes = results
        .iter()
        .map(|(group, comparisons)| note(rows.at(group, 0.0), comparisons));
    let overall = [at_least(&results)].into_iter().chain(better(&results));
    overall.chain(refused).chain(notes).collect()
}

fn at_least(results: &[GroupResult<'_>]) -> Conclusion {
    let mut behind = Vec::new();
    for (group, comparisons) in results {
        for (goal, comparison) in GOALS.iter().zip(comparisons) {
            if comparison.ratio < RATIO_MIN || comparison.ratio.is_nan() {
                let (ratio, against) = (times(comparison.ratio), &comparison.against);
                behind.push(format!("{group}, {}: {ratio} of {against}", goal.name));
            }
        }
    }
    let all = results.len() * GOALS.len();
    let exceptions = match &behind[..] {
        [] => String::new(),
        behind => format!(" Not: {}.", behind.join("; ")),
    };
    Conclusion::claim(
        format!(
            "isotherm has at least {RATIO_MIN} of the best other system on every workload and every figure: {} of {all}.{exceptions}",
            all - behind.len()
        ),
        behind.is_empty(),
    )
}

/// Groups with a better figure, by what holds of all their figures.
fn better(results: &[GroupResult<'_>]) -> [Conclusion; 3] {
    let groups = |holds: fn(&Comparison) -> bool| {
        let is_better = |comparison: &Comparison| comparison.rank == Rank::Better;
        let results = results.iter();
        let groups = results.filter(|(_, all)| all.iter().all(holds) && all.iter().any(is_better));
        groups.map(|(group, _)| *group).collect::<Vec<_>>()
    };
    let shown = |groups: &[&str]| {
        format!(
            "{} of {} ({})",
            groups.len(),
            results.len(),
            groups.join(", ")
        )
    };
    let not_behind = groups(|one| one.rank != Rank::Behind && one.ratio >= RATIO_MIN);
    let nearly = groups(|one| one.ratio >= RATIO_MIN);
    let on_all = groups(|one| one.rank == Rank::Better);
    [
        Conclusion::claim(
            format!(
                "On at least half of the workloads it is strictly better than every other policy on some figure and behind none of them on any, as far as seeds can tell: {}.",
                shown(&not_behind)
            ),
            not_behind.len() * 2 >= results.len(),
        ),
        Conclusion::note(format!(
            "Strictly better on some figure, and at least {RATIO_MIN} on the others: {}.",
            shown(&nearly)
        )),
        Conclusion::note(format!(
            "Strictly better on all three figures at once: {}.",
            shown(&on_all)
        )),
    ]
}

fn note(panel: Panel<'_>, comparisons: &[Comparison]) -> Conclusion {
    let against = GOALS.iter().zip(comparisons).map(|(goal, comparison)| {
        format!(
            "{} {} that of {} (seeds {} to {})",
            goal.name,
            times(comparison.ratio),
            comparison.against,
            short(comparison.spread.min),
            short(comparison.spread.max)
        )
    });
    Conclusion::note(format!(
        "{}: {}. Against the oracle: {}. Cache hits {}, the oracle's {}.",
        panel.group,
        against.collect::<Vec<_>>().join("; "),
        GOALS
            .map(|goal| times(mean_ratio(panel, goal, ORACLE)))
            .join(", "),
        panel.shown(OURS, HITS),
        panel.shown(ORACLE, HITS)
    ))
}
