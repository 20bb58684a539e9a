//! What the runs say, beside what the paper says.

use isotherm_report::number::{short, times};

use super::super::document::Table;
use super::super::explain;
use super::super::figure::{hits, p90, tokens};
use super::super::paper::{Against, Stated};
use super::super::rows::{Row, Rows};
use super::{BLIND, CHATS, LIMITED, PENDING, POLICIES, SGLANG};
use isotherm_report::Conclusion;

const SOURCE: &str = "SkyLB, section 5.2, text on Figure 9";

/// What is hoped for: most of the way to the paper's numbers.
const GAIN_MIN: f64 = 1.2;
const P90_GAIN_MIN: f64 = 5.0;

/// The limit with the highest throughput; of equal ones the smallest.
pub(super) fn best(rows: &Rows, group: &str, limits: &[u32]) -> u32 {
    let of = |limit: u32| rows.mean(group, LIMITED, f64::from(limit), tokens);
    limits
        .iter()
        .copied()
        .rev()
        .max_by(|a, b| of(*a).total_cmp(&of(*b)))
        .unwrap_or(1)
}

pub(super) fn choices(chats: &Rows, limited: &Rows, trees: &Rows, limits: &[u32]) -> Table {
    let gain = |limit: u32, figure: fn(&Row) -> f64| {
        trees.mean(SGLANG.0, PENDING, 0.0, figure)
            / limited.mean(SGLANG.0, LIMITED, f64::from(limit), figure)
    };
    let line = |name: &str, limit: u32| {
        vec![
            name.to_owned(),
            limit.to_string(),
            times(gain(limit, tokens)),
            times(1.0 / gain(limit, p90)),
        ]
    };
    let mut lines: Vec<Vec<String>> = CHATS
        .iter()
        .map(|(name, _)| line(name, best(chats, name, limits)))
        .collect();
    lines.push(line("these very trees", best(limited, SGLANG.0, limits)));
    Table {
        heads: [
            "chosen on",
            "limit",
            "throughput of SP-P over SP-O with it",
            "p90 TTFT of SP-O with it over SP-P",
        ]
        .map(String::from)
        .into(),
        lines,
    }
}

pub(super) fn paper(rows: &Rows) -> Vec<Against> {
    let mut against = Vec::new();
    for (group, _) in POLICIES {
        let ratio = |pair, figure: fn(&Row) -> f64| rows.ratio(group, pair, 0.0, figure);
        let hits = |system| rows.mean(group, system, 0.0, hits);
        against.extend([
            Against::one(
                format!("{group}: throughput of SP-P over BP"),
                Stated::times(1.27, SOURCE),
                ratio((PENDING, BLIND), tokens),
            ),
            Against::one(
                format!("{group}: throughput of SP-P over SP-O"),
                Stated::times(1.4, SOURCE),
                ratio((PENDING, LIMITED), tokens),
            ),
            Against::one(
                format!("{group}: p90 TTFT of BP over SP-P"),
                Stated::times(18.47, SOURCE),
                ratio((BLIND, PENDING), p90),
            ),
            Against::one(
                format!("{group}: cache hits of SP-P"),
                Stated::share(0.8986, SOURCE),
                hits(PENDING),
            ),
            Against::one(
                format!("{group}: cache hits of BP"),
                Stated::share(0.6889, SOURCE),
                hits(BLIND),
            ),
        ]);
    }
    against
}

pub(super) fn findings(
    trees: &Rows,
    chosen: u32,
    thoughts: &Rows,
    lengths: &Rows,
) -> Vec<Conclusion> {
    let mut findings = Vec::new();
    for (group, _) in POLICIES {
        let ratio = |pair, figure: fn(&Row) -> f64| trees.ratio(group, pair, 0.0, figure);
        let blind = ratio((PENDING, BLIND), tokens);
        let limited = ratio((PENDING, LIMITED), tokens);
        let sooner = ratio((BLIND, PENDING), p90);
        findings.extend([
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
        findings.push(Conclusion::note(explain::beside(
            trees,
            group,
            0.0,
            (PENDING, BLIND),
        )));
        findings.push(Conclusion::note(explain::beside(
            trees,
            group,
            0.0,
            (PENDING, LIMITED),
        )));
        findings.push(Conclusion::note(over(group, thoughts, "tokens a thought")));
        findings.push(Conclusion::note(over(group, lengths, "s of run")));
    }
    findings
}

/// SP-P against BP over what was turned.
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
                short(rows.mean(group, BLIND, x, explain::load("engine_waiting_mean")))
            )
        })
        .collect();
    format!("{group}, SP-P against BP. {}.", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::super::rows::tests::row;
    use super::*;

    #[test]
    fn the_limit_is_the_one_with_the_highest_throughput_and_of_equal_ones_the_smallest() {
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
