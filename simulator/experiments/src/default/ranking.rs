//! `isotherm` against the best other system, figure by figure.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::OURS;
use crate::figures::{ATTAINMENT, Figure, GOODPUTS, P50, P90, P99, TOKENS};
use crate::row::Row;
use crate::rows::{Panel, Stat};

/// Figures that decide.
pub(crate) const GOALS: [Figure; 3] = [TOKENS, ATTAINMENT, P90];
/// Figures of the yardstick that does not depend on the policy's own objective.
pub(crate) const YARDSTICK: [Figure; 7] = {
    let [at_1s, at_2s, at_5s, at_10s] = GOODPUTS;
    [at_1s, at_2s, at_5s, at_10s, P50, P90, P99]
};

/// As good, but for what a figure is rounded by: a difference below this is none, however sure it is.
const ROUNDING: f64 = 0.0005;
/// Better by less than this is not called better, however sure it is.
const BETTER_MIN: f64 = 0.005;
/// How sure a difference has to be: the part of Student's t that lies below the upper end of its 95 % interval.
const SURE: f64 = 0.975;

/// How `isotherm` stands on one figure among all others, as far as the seeds can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Better than every one.
    Better,
    /// Behind none.
    Equal,
    /// Behind some one, be it the best or not.
    Behind,
}

impl Rank {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Equal => "not behind",
            Self::Behind => "behind",
        }
    }
}

/// Ratio of `isotherm` to the best other system of a figure, and the name of that system.
pub(crate) fn ratio_to_best<'a>(
    panel: Panel<'_>,
    goal: Figure,
    others: &[&'a str],
) -> Option<(f64, &'a str)> {
    let best = panel.best(others.iter().copied(), goal)?;
    Some((mean_ratio(panel, goal, best), best))
}

/// `isotherm` on one figure, against the best other system of that figure.
pub(crate) struct Comparison {
    pub(crate) against: String,
    pub(crate) ratio: f64,
    /// Spread of the ratios seed by seed.
    pub(crate) spread: Stat,
    /// Among all others.
    pub(crate) rank: Rank,
}

/// Ratio of `ours` to `theirs`, inverted where less is better. Two zeros are equal.
fn ratio(goal: Figure, ours: f64, theirs: f64) -> f64 {
    let (more, than) = if goal.is_less_better {
        (theirs, ours)
    } else {
        (ours, theirs)
    };
    if more == than { 1.0 } else { more / than }
}

/// Ratio of the means of `isotherm` and another system.
pub(crate) fn mean_ratio(panel: Panel<'_>, goal: Figure, other: &str) -> f64 {
    ratio(goal, panel.mean(OURS, goal), panel.mean(other, goal))
}

pub(crate) fn comparisons(panel: Panel<'_>, others: &[&str]) -> Vec<Comparison> {
    let comparison = |goal: Figure| {
        let best = panel.best(others.iter().copied(), goal)?;
        let pairs = pairs(panel, goal, best).into_iter();
        Some(Comparison {
            against: best.to_owned(),
            ratio: mean_ratio(panel, goal, best),
            spread: Stat::of(pairs.map(|(ours, theirs)| ratio(goal, ours, theirs))),
            rank: rank(panel, goal, others),
        })
    };
    GOALS.into_iter().filter_map(comparison).collect()
}

/// Whether the seeds agree that `isotherm` is behind another system on a figure.
pub(crate) fn is_beyond_chance(panel: Panel<'_>, goal: Figure, other: &str) -> bool {
    sure_sign(&advantages(panel, goal, other)) < 0
}

/// Differences of `isotherm` and another system, seed by seed; positive where `isotherm` is better.
fn advantages(panel: Panel<'_>, goal: Figure, other: &str) -> Vec<f64> {
    let sign = if goal.is_less_better { -1.0 } else { 1.0 };
    let pairs = pairs(panel, goal, other).into_iter();
    pairs
        .map(|(ours, theirs)| sign * difference(ours, theirs))
        .collect()
}

fn rank(panel: Panel<'_>, goal: Figure, others: &[&str]) -> Rank {
    let against = |other: &&str| {
        let more = advantages(panel, goal, other);
        let ratio = mean_ratio(panel, goal, other);
        match sure_sign(&more) {
            1 if ratio > 1.0 + BETTER_MIN => Rank::Better,
            -1 if ratio < 1.0 - ROUNDING => Rank::Behind,
            _ => Rank::Equal,
        }
    };
    let against: Vec<Rank> = others.iter().map(against).collect();
    if against.contains(&Rank::Behind) {
        Rank::Behind
    } else if against.iter().all(|rank| *rank == Rank::Better) {
        Rank::Better
    } else {
        Rank::Equal
    }
}

/// Our figure and another system's, for each seed.
fn pairs(panel: Panel<'_>, goal: Figure, other: &str) -> Vec<(f64, f64)> {
    let pair = |row: &Row| {
        let theirs = panel.runs(other).find(|theirs| theirs.seed == row.seed);
        let theirs = theirs.map_or(f64::NAN, |theirs| goal.value(theirs));
        (goal.value(row), theirs)
    };
    panel.runs(OURS).map(pair).collect()
}

/// Difference of two figures; two infinite ones are equal.
fn difference(ours: f64, theirs: f64) -> f64 {
    if ours == theirs { 0.0 } else { ours - theirs }
}

/// The sign of the mean of which these are samples; 0 where they leave it open.
fn sure_sign(samples: &[f64]) -> i8 {
    let count = samples.len() as f64;
    let Ok(distribution) = StudentsT::new(0.0, 1.0, count - 1.0) else {
        return 0;
    };
    let mean = samples.iter().sum::<f64>() / count;
    if mean.is_infinite() {
        return if mean > 0.0 { 1 } else { -1 };
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let reach = distribution.inverse_cdf(SURE) * error;
    if mean > reach {
        1
    } else if mean < -reach {
        -1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;
    use crate::rows::tests::row;

    /// Throughput and p90 of one run.
    fn run(system: &str, seed: u64, throughput: f64, p90: f64) -> Row {
        let mut row = row("w", system, 0.0, seed, throughput);
        let summary = row.summary.as_mut().unwrap();
        (summary.slo_attainment, summary.ttft_p90_s) = (0.5, p90);
        row
    }

    #[test]
    fn each_figure_has_its_own_best_other_system_and_less_time_is_better() {
        let rows = Rows(vec![
            run(OURS, 1, 30.0, 2.0),
            run("a", 1, 20.0, 4.0),
            run("b", 1, 10.0, 1.0),
        ]);
        let comparisons = comparisons(rows.at("w", 0.0), &["a", "b"]);
        let found: Vec<(&str, f64)> = comparisons
            .iter()
            .map(|comparison| (comparison.against.as_str(), comparison.ratio))
            .collect();
        assert_eq!(found[0], ("a", 1.5));
        assert_eq!(found[1].1, 1.0);
        assert_eq!(found[2], ("b", 0.5));
    }

    #[test]
    fn a_system_is_better_where_the_seeds_agree_and_equal_elsewhere() {
        let of = |ours: [f64; 4], theirs: f64| {
            let runs = ours.iter().zip(1..).flat_map(|(ours, seed)| {
                [run(OURS, seed, *ours, 1.0), run("a", seed, theirs, 1.0)]
            });
            rank(Rows(runs.collect()).at("w", 0.0), GOALS[0], &["a"])
        };
        assert_eq!(of([10.2, 10.3, 10.2, 10.3], 10.0), Rank::Better);
        assert_eq!(of([9.8, 9.7, 9.8, 9.7], 10.0), Rank::Behind);
        assert_eq!(of([9.0, 11.5, 9.5, 11.0], 10.0), Rank::Equal);
        assert_eq!(of([10.0; 4], 10.0), Rank::Equal);
        assert_eq!(of([20.0; 4], 10.0), Rank::Better);
        assert_eq!(
            of([10.02, 10.03, 10.02, 10.03], 10.0),
            Rank::Equal,
            "certain, but too small to matter"
        );
        assert_eq!(
            of([f64::NEG_INFINITY, 1.0, 1.0, 1.0], 10.0),
            Rank::Behind,
            "as where most requests are refused"
        );
        assert_eq!(sure_sign(&[1.0]), 0, "one seed says nothing");
        assert_eq!(sure_sign(&[]), 0);
    }

    #[test]
    fn a_system_behind_a_steady_other_is_behind_even_where_the_best_other_is_noisy() {
        let theirs = [(11.0, 10.2), (15.0, 10.2), (9.0, 10.2), (8.0, 10.2)];
        let runs = theirs.iter().zip(1..).flat_map(|((noisy, steady), seed)| {
            [
                run(OURS, seed, 10.0, 1.0),
                run("a", seed, *noisy, 1.0),
                run("b", seed, *steady, 1.0),
            ]
        });
        let rows = Rows(runs.collect());
        let comparisons = comparisons(rows.at("w", 0.0), &["a", "b"]);
        assert_eq!(comparisons[0].against, "a");
        assert_eq!(comparisons[0].rank, Rank::Behind);
    }

    #[test]
    fn a_ratio_is_of_means_and_its_spread_is_seed_by_seed() {
        let rows = Rows(vec![
            run(OURS, 1, 10.0, 1.0),
            run(OURS, 2, 30.0, 1.0),
            run("a", 1, 20.0, 1.0),
            run("a", 2, 20.0, 1.0),
        ]);
        let comparison = &comparisons(rows.at("w", 0.0), &["a"])[0];
        assert_eq!(comparison.ratio, 1.0);
        assert_eq!((comparison.spread.min, comparison.spread.max), (0.5, 1.5));
    }
}
