//! DualMap, Figure 1: cache hits against load balance.
//!
//! The coefficient of variation of the replicas' pending prefill tokens (the paper's equation 1), sampled once a second, mean
//! over the samples. It has no meaning while nothing is pending: moments without any are left out.

use isotherm_report::chart::{Chart, Point, Scatter};
use isotherm_report::number::{percent, short, times};

use super::document::{Document, Section};
use super::dualmap::{
    AFFINITY, BASELINES, CONVERSATION, DUAL_MAP, GROUPS, LEAST_LOADED, PUSHING, SYSTEMS, TOOLS,
    high_rates, over_rate,
};
use super::explain;
use super::figure::{cv, hits};
use super::lab::Lab;
use super::paper::{Against, Stated};
use super::rows::{Row, Rows};
use isotherm_report::Conclusion;

const SOURCE: &str = "DualMap, section 2.2, text on Figure 1";

/// Runs it.
pub(super) fn run(lab: &Lab) -> anyhow::Result<Document> {
    let swept = over_rate(lab);
    // The rate at which the fleet is loaded and no policy is past all hope: the last before the best baseline fails.
    let at = |group: &str| {
        let first_high = high_rates(&swept, group).first().copied().unwrap_or(0.0);
        let before = swept.xs(group).into_iter().rfind(|x| *x < first_high);
        before.unwrap_or(first_high)
    };
    let rates = GROUPS.map(|group| (group, at(group)));
    let rows = Rows(
        swept
            .0
            .iter()
            .filter(|row| rates.contains(&(row.group.as_str(), row.x)))
            .cloned()
            .collect(),
    );
    let charts = rates
        .iter()
        .map(|(group, rate)| scatter(&rows, group, *rate))
        .collect::<anyhow::Result<Vec<Chart>>>()?;
    let cells: Vec<(&str, &str, f64)> = rates
        .iter()
        .flat_map(|(group, rate)| SYSTEMS.map(|system| (*group, system, *rate)))
        .collect();
    Ok(Document {
        name: "dualmap-1",
        title: "DualMap, Figure 1: cache hits against load balance".into(),
        about: vec![format!(
            "8 replicas (Llama-3.1-8B on two A100 each), at the highest rate of dualmap-3 that the best of the paper's baselines still serves within the SLO: \
             {} requests/s of {CONVERSATION}, {} of {TOOLS}. {PUSHING}",
            short(at(CONVERSATION)),
            short(at(TOOLS))
        )],
        paper: vec![Against::one(
            "Conversation: cache hits of Cache Affinity over Least Loaded",
            Stated::times(1.21, SOURCE),
            rows.ratio(
                CONVERSATION,
                (AFFINITY, LEAST_LOADED),
                at(CONVERSATION),
                hits,
            ),
        )],
        findings: rates
            .iter()
            .flat_map(|(group, rate)| findings(&rows, group, *rate))
            .collect(),
        sections: vec![Section {
            title: "Hits and balance".into(),
            text: "To the left: even load. Up: warm caches.".into(),
            key: SYSTEMS.map(String::from).into(),
            charts,
            table: Some(explain::table(&rows, &cells)),
        }],
        rows,
    })
}

fn scatter(rows: &Rows, group: &str, rate: f64) -> anyhow::Result<Chart> {
    let chart = Scatter {
        points: SYSTEMS
            .iter()
            .enumerate()
            .map(|(series, system)| Point {
                name: (*system).to_owned(),
                series,
                at: (
                    rows.mean(group, system, rate, cv),
                    rows.mean(group, system, rate, hits),
                ),
            })
            .collect(),
        x_name: "coefficient of variation of pending prefill tokens".into(),
        y_name: "cache hits, share".into(),
    };
    let title = format!("{group}, {} requests/s", short(rate));
    Ok(Chart::new(title, "", chart))
}

fn findings(rows: &Rows, group: &str, rate: f64) -> Vec<Conclusion> {
    let mean = |system, figure: fn(&Row) -> f64| rows.mean(group, system, rate, figure);
    let (low, high) = (mean(LEAST_LOADED, hits), mean(AFFINITY, hits));
    let between = BASELINES
        .iter()
        .filter(|system| !matches!(**system, AFFINITY | LEAST_LOADED))
        .all(|system| (low..=high).contains(&mean(system, hits)));
    vec![
        Conclusion::claim(
            format!(
                "{group}: Cache Affinity hits more than Least Loaded ({} against {}, {}) and is less even (CV {} against {}).",
                percent(high),
                percent(low),
                times(high / low),
                short(mean(AFFINITY, cv)),
                short(mean(LEAST_LOADED, cv))
            ),
            high > low && mean(AFFINITY, cv) > mean(LEAST_LOADED, cv),
        ),
        Conclusion::claim(
            format!("{group}: Min TTFT and Preble hit between the two."),
            between,
        ),
        Conclusion::note(format!(
            "{group}: DualMap hits {} with a CV of {}: {} of what Cache Affinity hits.",
            percent(mean(DUAL_MAP, hits)),
            short(mean(DUAL_MAP, cv)),
            percent(mean(DUAL_MAP, hits) / high)
        )),
    ]
}
