//! `isotherm` against the best other system, figure by figure.

use super::super::figure::{attainment, tokens};
use super::super::rows::{Row, Rows, Stat};
use super::OURS;

/// A figure that decides.
pub(super) struct Goal {
    pub(super) name: &'static str,
    pub(super) figure: fn(&Row) -> f64,
    /// Whether less of it is better.
    pub(super) less: bool,
}

pub(super) const GOALS: [Goal; 3] = [
    Goal {
        name: "throughput",
        figure: tokens,
        less: false,
    },
    Goal {
        name: "requests within the SLO",
        figure: attainment,
        less: false,
    },
    Goal {
        name: "p90 TTFT",
        figure: |row| row.summary.ttft_p90_s,
        less: true,
    },
];

impl Goal {
    /// How many times as good `ours` is as `theirs`. Two zeros are equal.
    pub(super) fn ratio(&self, ours: f64, theirs: f64) -> f64 {
        let (more, than) = if self.less {
            (theirs, ours)
        } else {
            (ours, theirs)
        };
        if more == than { 1.0 } else { more / than }
    }

    pub(super) fn mean(&self, rows: &Rows, group: &str, system: &str) -> f64 {
        rows.mean(group, system, 0.0, self.figure)
    }

    /// The best other system.
    pub(super) fn best<'a>(
        &self,
        rows: &Rows,
        group: &str,
        others: &'a [String],
    ) -> Option<&'a str> {
        let better = |a: f64, b: f64| {
            if self.less {
                b.total_cmp(&a)
            } else {
                a.total_cmp(&b)
            }
        };
        others
            .iter()
            .map(String::as_str)
            .max_by(|a, b| better(self.mean(rows, group, a), self.mean(rows, group, b)))
    }
}

/// `isotherm` against one other system.
pub(super) struct Verdict {
    pub(super) against: String,
    pub(super) ratio: f64,
    pub(super) spread: Stat,
}

pub(super) fn verdict(rows: &Rows, group: &str, goal: &Goal, against: &str) -> Verdict {
    let seeds = rows.of(group, OURS, 0.0).map(|row| {
        let same = rows
            .of(group, against, 0.0)
            .find(|other| other.seed == row.seed);
        same.map_or(f64::NAN, |other| {
            goal.ratio((goal.figure)(row), (goal.figure)(other))
        })
    });
    Verdict {
        against: against.to_owned(),
        ratio: goal.ratio(
            goal.mean(rows, group, OURS),
            goal.mean(rows, group, against),
        ),
        spread: Stat::of(seeds),
    }
}

pub(super) fn verdicts(rows: &Rows, group: &str, others: &[String]) -> Vec<Verdict> {
    GOALS
        .iter()
        .filter_map(|goal| Some(verdict(rows, group, goal, goal.best(rows, group, others)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::rows::tests::row;
    use super::*;

    fn others() -> Vec<String> {
        ["a", "b"].map(String::from).into()
    }

    /// Throughput and p90 of one run.
    fn run(system: &str, seed: u64, throughput: f64, p90: f64) -> Row {
        let mut row = row("w", system, 0.0, seed, throughput);
        row.summary.slo_attainment = 0.5;
        row.summary.ttft_p90_s = p90;
        row
    }

    #[test]
    fn each_figure_has_its_own_best_other_and_a_time_is_better_when_it_is_less() {
        let rows = Rows(vec![
            run(OURS, 1, 30.0, 2.0),
            run("a", 1, 20.0, 4.0),
            run("b", 1, 10.0, 1.0),
        ]);
        let verdicts = verdicts(&rows, "w", &others());
        let found: Vec<(&str, f64)> = verdicts
            .iter()
            .map(|verdict| (verdict.against.as_str(), verdict.ratio))
            .collect();
        assert_eq!(found[0], ("a", 1.5));
        assert_eq!(found[1].1, 1.0);
        assert_eq!(found[2], ("b", 0.5));
    }

    #[test]
    fn a_ratio_is_of_means_and_its_spread_is_seed_by_seed() {
        let rows = Rows(vec![
            run(OURS, 1, 10.0, 1.0),
            run(OURS, 2, 30.0, 1.0),
            run("a", 1, 20.0, 1.0),
            run("a", 2, 20.0, 1.0),
        ]);
        let verdict = verdict(&rows, "w", &GOALS[0], "a");
        assert_eq!(verdict.ratio, 1.0);
        assert_eq!((verdict.spread.min, verdict.spread.max), (0.5, 1.5));
    }
}
