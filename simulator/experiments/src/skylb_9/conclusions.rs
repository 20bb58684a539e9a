//! Conclusions from the runs, and the paper's figures beside them.

use isotherm_report::number::{short, times};
use isotherm_report::{Conclusion, Table};

use super::{BLIND, CHATS, LIMITED, PENDING, POLICIES, SGLANG};
use crate::explain;
use crate::figures::{ENGINE_WAITING, Figure, HITS, P90, TOKENS};
use crate::paper::{PaperComparison, Source};
use crate::rows::Rows;

const SOURCE: Source = Source("SkyLB, section 5.2, text on Figure 9");

/// Expected gains: most of the way to the paper's numbers.
const GAIN_MIN: f64 = 1.2;
const P90_GAIN_MIN: f64 = 5.0;

/// The limit with the highest throughput; of equal ones the smallest.
pub(crate) fn best(rows: &Rows, group: &str, limits: &[u32]) -> u32 {
    let throughput = |limit: &u32| rows.at(group, f64::from(*limit)).mean(LIMITED, TOKENS);
    let limits = limits.iter().copied().rev();
    limits
        .max_by(|a, b| throughput(a).total_cmp(&throughput(b)))
        .unwrap_or(1)
}

pub(crate) fn choices(chats: &Rows, limited: &Rows, trees: &Rows, limits: &[u32]) -> Table {
    let row = |name: &str, limit: u32| {
        let gain = |figure: Figure| {
            let limited = limited.at(SGLANG.0, f64::from(limit));
            trees.at(SGLANG.0, 0.0).mean(PENDING, figure) / limited.mean(LIMITED, figure)
        };
        let gains = [gain(TOKENS), 1.0 / gain(P90)].map(times);
        [name.to_owned(), limit.to_string()]
            .into_iter()
            .chain(gains)
    };
    let columns = [
        "chosen on",
        "limit",
        "throughput of SP-P over SP-O with it",
        "p90 TTFT of SP-O with it over SP-P",
    ];
    let rows = CHATS.map(|(name, _)| row(name, best(chats, name, limits)));
    let own = row("these trees", best(limited, SGLANG.0, limits));
    Table::new(columns).with_rows(rows.into_iter().chain([own]))
}

pub(crate) fn paper(rows: &Rows) -> Vec<PaperComparison> {
    let comparisons = POLICIES.map(|(group, _)| {
        let panel = rows.at(group, 0.0);
        let gains = [
            ("throughput of SP-P over BP", 1.27, PENDING, BLIND, TOKENS),
            (
                "throughput of SP-P over SP-O",
                1.4,
                PENDING,
                LIMITED,
                TOKENS,
            ),
            ("p90 TTFT of BP over SP-P", 18.47, BLIND, PENDING, P90),
        ];
        let gains = gains.map(|(name, gain, ours, theirs, figure)| {
            let ratio = panel.ratio(ours, theirs, figure);
            SOURCE.times(format!("{group}: {name}"), (gain, gain), &[ratio])
        });
        let hits = [("SP-P", 0.8986, PENDING), ("BP", 0.6889, BLIND)];
        let hits = hits.map(|(name, share, system)| {
            let what = format!("{group}: cache hits of {name}");
            SOURCE.share(what, (share, share), &[panel.mean(system, HITS)])
        });
        gains.into_iter().chain(hits)
    });
    comparisons.into_iter().flatten().collect()
}

pub(crate) fn conclusions(
    trees: &Rows,
    chosen: u32,
    thoughts: &Rows,
    lengths: &Rows,
) -> Vec<Conclusion> {
    let claims = POLICIES.into_iter().flat_map(|(group, _)| {
        let panel = trees.at(group, 0.0);
        let blind = panel.ratio(PENDING, BLIND, TOKENS);
        let limited = panel.ratio(PENDING, LIMITED, TOKENS);
        let sooner = panel.ratio(BLIND, PENDING, P90);
        [
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
        ]
    });
    let notes = POLICIES.into_iter().flat_map(|(group, _)| {
        let panel = trees.at(group, 0.0);
        let texts = [
            explain::beside(panel, PENDING, BLIND),
            explain::beside(panel, PENDING, LIMITED),
            over(group, thoughts, "tokens a thought"),
            over(group, lengths, "s of run"),
        ];
        texts.map(Conclusion::note)
    });
    claims.chain(notes).collect()
}

/// SP-P against BP over the varied parameter.
fn over(group: &str, rows: &Rows, unit: &str) -> String {
    let part = |x| {
        let panel = rows.at(group, x);
        format!(
            "{} {unit}: throughput {}, p90 TTFT {} lower, replicas' requests outside the batch under BP {}",
            short(x),
            times(panel.ratio(PENDING, BLIND, TOKENS)),
            times(panel.ratio(BLIND, PENDING, P90)),
            panel.shown(BLIND, ENGINE_WAITING)
        )
    };
    let parts: Vec<String> = rows.xs(group).into_iter().map(part).collect();
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
