//! Conclusions from the runs, and the paper's figures beside them.

use isotherm_report::number::{short, times};

use super::{BLIND, CHATS, LIMITED, PENDING, POLICIES, SGLANG};
use crate::explain;
use crate::figures::{Figure, hits, load, p90, tokens};
use crate::paper::{PaperComparison, PaperFigure};
use crate::rows::Rows;
use isotherm_report::{Conclusion, Table};

const SOURCE: &str = "SkyLB, section 5.2, text on Figure 9";

/// Expected gains: most of the way to the paper's numbers.
const GAIN_MIN: f64 = 1.2;
const P90_GAIN_MIN: f64 = 5.0;

/// The limit with the highest throughput; of equal ones the smallest.
pub(crate) fn best(rows: &Rows, group: &str, limits: &[u32]) -> u32 {
    let of = |limit: u32| rows.mean(group, LIMITED, f64::from(limit), tokens);
    limits
        .iter()
        .copied()
        .rev()
        .max_by(|a, b| of(*a).total_cmp(&of(*b)))
        .unwrap_or(1)
}

pub(crate) fn choices(chats: &Rows, limited: &Rows, trees: &Rows, limits: &[u32]) -> Table {
    let gain = |limit: u32, figure: Figure| {
        trees.mean(SGLANG.0, PENDING, 0.0, figure)
            / limited.mean(SGLANG.0, LIMITED, f64::from(limit), figure)
    };
    let row = |name: &str, limit: u32| {
        [
            name.to_owned(),
            limit.to_string(),
            times(gain(limit, tokens)),
            times(1.0 / gain(limit, p90)),
        ]
    };
    let columns = [
        "chosen on",
        "limit",
        "throughput of SP-P over SP-O with it",
        "p90 TTFT of SP-O with it over SP-P",
    ];
    let rows = CHATS
        .iter()
        .map(|(name, _)| row(name, best(chats, name, limits)));
    Table::new(columns).with_rows(rows.chain([row("these trees", best(limited, SGLANG.0, limits))]))
}

pub(crate) fn paper(rows: &Rows) -> Vec<PaperComparison> {
    let mut against = Vec::new();
    for (group, _) in POLICIES {
        let ratio = |pair, figure: Figure| rows.ratio(group, pair, 0.0, figure);
        let hits = |system| rows.mean(group, system, 0.0, hits);
        against.extend([
            PaperComparison::one(
                format!("{group}: throughput of SP-P over BP"),
                PaperFigure::times(1.27, SOURCE),
                ratio((PENDING, BLIND), tokens),
            ),
            PaperComparison::one(
                format!("{group}: throughput of SP-P over SP-O"),
                PaperFigure::times(1.4, SOURCE),
                ratio((PENDING, LIMITED), tokens),
            ),
            PaperComparison::one(
                format!("{group}: p90 TTFT of BP over SP-P"),
                PaperFigure::times(18.47, SOURCE),
                ratio((BLIND, PENDING), p90),
            ),
            PaperComparison::one(
                format!("{group}: cache hits of SP-P"),
                PaperFigure::share(0.8986, SOURCE),
                hits(PENDING),
            ),
            PaperComparison::one(
                format!("{group}: cache hits of BP"),
                PaperFigure::share(0.6889, SOURCE),
                hits(BLIND),
            ),
        ]);
    }
    against
}

pub(crate) fn conclusions(
    trees: &Rows,
    chosen: u32,
    thoughts: &Rows,
    lengths: &Rows,
) -> Vec<Conclusion> {
    let mut conclusions = Vec::new();
    for (group, _) in POLICIES {
        let ratio = |pair, figure: Figure| trees.ratio(group, pair, 0.0, figure);
        let blind = ratio((PENDING, BLIND), tokens);
        let limited = ratio((PENDING, LIMITED), tokens);
        let sooner = ratio((BLIND, PENDING), p90);
        conclusions.extend([
            Conclusion::claim(
                format!("{group}: SP-P has at least {GAIN_MIN} times the throughput of BP: {}.", times(blind)),
                blind >= GAIN_MIN,
            ),
            Conclusion::claim(
                format!("{group}: SP-P's p90 TTFT is lower than BP's by at least {P90_GAIN_MIN} times: {}.", times(sooner)),
                sooner >= P90_GAIN_MIN,
            ),
            Conclusion::claim(
                format!(
                    "{group}: SP-P has at least {GAIN_MIN} times the throughput of SP-O with the limit that is best for {} ({chosen}): {}.",
                    CHATS[0].0,
                    times(limited)
                ),
                limited >= GAIN_MIN,
            ),
        ]);
    }
    for (group, _) in POLICIES {
        conclusions.push(Conclusion::note(explain::beside(
            trees,
            group,
            0.0,
            (PENDING, BLIND),
        )));
        conclusions.push(Conclusion::note(explain::beside(
            trees,
            group,
            0.0,
            (PENDING, LIMITED),
        )));
        conclusions.push(Conclusion::note(over(group, thoughts, "tokens a thought")));
        conclusions.push(Conclusion::note(over(group, lengths, "s of run")));
    }
    conclusions
}

/// SP-P against BP over the varied parameter.
fn over(group: &str, rows: &Rows, unit: &str) -> String {
    let parts: Vec<String> = rows
        .xs(group)
        .into_iter()
        .map(|x| {
            format!(
                "{} {unit}: throughput {}, p90 TTFT {} lower, replicas' requests outside the batch under BP {}",
                short(x),
                times(rows.ratio(group, (PENDING, BLIND), x, tokens)),
                times(rows.ratio(group, (BLIND, PENDING), x, p90)),
                short(rows.mean(group, BLIND, x, load("engine_waiting_mean")))
            )
        })
        .collect();
    format!("{group}, SP-P against BP. {}.", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::row;

    #[test]
    fn the_best_limit_has_the_highest_throughput_and_is_the_smallest_of_equals() {
        let rows = Rows(vec![
            row("g", LIMITED, 4.0, 1, 10.0),
            row("g", LIMITED, 8.0, 1, 30.0),
            row("g", LIMITED, 16.0, 1, 30.0),
            row("g", LIMITED, 32.0, 1, 20.0),
        ]);
        assert_eq!(best(&rows, "g", &[4, 8, 16, 32]), 8);
        assert_eq!(best(&rows, "g", &[4]), 4);
    }
}
