//! Reasons of a cell that falls short, as far as its runs tell.

use isotherm_simulator::Telemetry;
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::OURS;
use super::cells::{Cell, FigureRatio};
use crate::figures::{
    ENGINE_WAITING, FAILED, FORWARDED, Figure, GOODPUTS, HITS, MOST_OVER_MEAN, P90, ROUTER_WAITING,
    Row, WAITS_BESIDE_IDLE,
};
use crate::rows::{Panel, Rows};

/// Part of Student's t that lies below the upper end of its 95 % interval.
const SURE: f64 = 0.975;
/// Difference of two shares that counts as a reason.
const SHARE_DIFFERENCE: f64 = 0.01;
/// Ratio of two loads that counts as a reason.
const LOAD_RATIO: f64 = 1.2;
/// Load below which a ratio says nothing.
const LOAD_MIN: f64 = 0.05;

/// Reasons of a cell, in a sentence.
pub(super) fn reasons(rows: &Rows, cell: &Cell, full: Option<&Cell>) -> String {
    let group = super::group(cell.workload, cell.telemetry);
    let panel = rows.at(&group, 0.0);
    let mut found = Vec::new();
    let worst = cell
        .shortfalls()
        .max_by(|a, b| by_how_far(a).total_cmp(&by_how_far(b)));
    let Some(worst) = worst else {
        return String::new();
    };
    if !is_certain(panel, cell) {
        found.push("the seeds leave it open".to_owned());
    }
    if worst.best_other.starts_with("central") {
        found.push("the other balancer sees all regions".to_owned());
    }
    let holds_with_full = full.is_some_and(Cell::holds);
    if holds_with_full && cell.telemetry != Telemetry::Full {
        found.push("the cell holds with full telemetry".to_owned());
    }
    found.extend(differences(panel, &worst.best_other));
    if found.is_empty() {
        found.push("hits, waits and balance are alike".to_owned());
    }
    found.join("; ")
}

/// Part by which a figure is worse than the other system's.
fn by_how_far(one: &FigureRatio) -> f64 {
    if one.figure == P90.name {
        one.ratio - 1.0
    } else {
        1.0 - one.ratio
    }
}

/// Whether the seeds agree on any of the figures that fall short; a single seed leaves all open.
fn is_certain(panel: Panel<'_>, cell: &Cell) -> bool {
    let figures = GOODPUTS.into_iter().chain([P90]);
    let short: Vec<&FigureRatio> = cell.shortfalls().collect();
    figures.into_iter().any(|figure| {
        let other = short.iter().find(|one| one.figure == figure.name);
        other.is_some_and(|other| is_beyond_chance(panel, figure, &other.best_other))
    })
}

/// Whether the seeds agree that the default policy is behind another system on a figure.
fn is_beyond_chance(panel: Panel<'_>, figure: Figure, other: &str) -> bool {
    let sign = if figure.is_less_better { -1.0 } else { 1.0 };
    let advantage = |row: &Row| {
        let mut theirs = panel.runs(other);
        let theirs = theirs.find(|theirs| theirs.seed == row.seed);
        let (ours, theirs) = (
            figure.value(row),
            theirs.map_or(f64::NAN, |row| figure.value(row)),
        );
        // Two infinite times are equal.
        if ours == theirs {
            0.0
        } else {
            sign * (ours - theirs)
        }
    };
    is_below_zero(&panel.runs(OURS).map(advantage).collect::<Vec<_>>())
}

/// Whether the 95 % interval of the mean of which these are samples (Student's t) lies below zero.
fn is_below_zero(samples: &[f64]) -> bool {
    let count = samples.len() as f64;
    let Ok(distribution) = StudentsT::new(0.0, 1.0, count - 1.0) else {
        return false;
    };
    let mean = samples.iter().sum::<f64>() / count;
    if mean.is_infinite() {
        return mean < 0.0;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    mean < -distribution.inverse_cdf(SURE) * error
}

/// Differences of the runs that go with a shortfall.
fn differences(panel: Panel<'_>, other: &str) -> Vec<String> {
    let share = |figure: Figure, sign: f64| {
        let (ours, theirs) = (panel.mean(OURS, figure), panel.mean(other, figure));
        (sign * (ours - theirs) > SHARE_DIFFERENCE).then(|| beside(panel, figure, other))
    };
    let load = |figure: Figure| {
        let (ours, theirs) = (panel.mean(OURS, figure), panel.mean(other, figure));
        (ours > LOAD_MIN && ours > LOAD_RATIO * theirs).then(|| beside(panel, figure, other))
    };
    [
        load(FAILED),
        share(HITS, -1.0),
        share(WAITS_BESIDE_IDLE, 1.0),
        load(ENGINE_WAITING),
        load(ROUTER_WAITING),
        load(MOST_OVER_MEAN),
        share(FORWARDED, 1.0),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn beside(panel: Panel<'_>, figure: Figure, other: &str) -> String {
    format!(
        "{} {} against {} of {other}",
        figure.name,
        panel.shown(OURS, figure),
        panel.shown(other, figure)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robustness::cells::judge;
    use crate::robustness::cells::tests::run;
    use crate::robustness::plan::Plan;
    use isotherm_simulator::workload::adverse::pool;

    #[test]
    fn a_difference_is_beyond_chance_where_the_seeds_agree() {
        assert!(is_below_zero(&[-0.2, -0.3, -0.2, -0.3]));
        assert!(!is_below_zero(&[-1.0, 1.5, -0.5, -1.0]));
        assert!(!is_below_zero(&[0.2, 0.3, 0.2, 0.3]));
        assert!(is_below_zero(&[f64::NEG_INFINITY, 1.0, 1.0, 1.0]));
        assert!(!is_below_zero(&[-1.0]), "one seed says nothing");
    }

    #[test]
    fn a_shortfall_names_what_differs_and_what_it_hangs_on() {
        let plan = Plan {
            workloads: vec![pool(8)],
            telemetry: vec![Telemetry::Full, Telemetry::Opaque],
            scale: 1.0,
        };
        let mut rows = Vec::new();
        for (profile, goodput) in [("full", 10.0), ("opaque", 8.0)] {
            let group = format!("pool-8, {profile}");
            let mut ours = run(&group, OURS, goodput, 1.0);
            let mut theirs = run(&group, "prefix_tree / blind", 10.0, 1.0);
            ours.summary.as_mut().unwrap().hit_ratio = 0.5;
            theirs.summary.as_mut().unwrap().hit_ratio = 0.6;
            rows.extend([ours, theirs]);
        }
        let rows = Rows(rows);
        let cells = judge(&plan, &rows);
        let text = reasons(&rows, &cells[1], Some(&cells[0]));
        for part in [
            "the seeds leave it open",
            "holds with full telemetry",
            "cache hits 50.0 % against 60.0 % of prefix_tree / blind",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(reasons(&rows, &cells[0], None), "", "the cell holds");
    }
}
