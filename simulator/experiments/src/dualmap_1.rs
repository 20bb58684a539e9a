//! DualMap, Figure 1: cache hits against load balance.
//!
//! The coefficient of variation of the replicas' pending prefill tokens (the paper's equation 1), sampled once a second, mean
//! over the samples. It has no meaning while nothing is pending: moments without any are left out.

use isotherm_report::chart::{Chart, Point, Scatter};
use isotherm_report::number::{percent, short, times};

use crate::context::Context;
use crate::document::Document;
use crate::dualmap::{
    AFFINITY, BASELINES, CONVERSATION, DUAL_MAP, GROUPS, LEAST_LOADED, PUSHING, SYSTEMS, TOOLS,
    high_rates, over_rate,
};
use crate::explain;
use crate::figures::{cv, hits};
use crate::paper::{PaperComparison, PaperFigure};
use crate::rows::{Row, Rows};
use isotherm_report::{Conclusion, Section};

const SOURCE: &str = "DualMap, section 2.2, text on Figure 1";

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let swept = over_rate(context);
    // The rate at which the fleet is loaded and no policy is past all hope: the last before the best baseline fails.
    let at = |group: &str| {
        let first_high = high_rates(&swept, group).first().copied().unwrap_or(0.0);
        let before = swept.xs(group).into_iter().rfind(|x| *x < first_high);
        before.unwrap_or(first_high)
    };
    let rates = GROUPS.map(|group| (group, at(group)));
    let rows = swept.filtered(|row| rates.contains(&(row.group.as_str(), row.x)));
    let charts = rates.map(|(group, rate)| scatter(&rows, group, rate));
    Document {
        title: "DualMap, Figure 1: cache hits against load balance".into(),
        about: vec![format!(
            "8 replicas (Llama-3.1-8B on two A100 each), at the highest rate of dualmap-3 that the best of the paper's baselines still serves within the SLO: \
             {} requests/s of {CONVERSATION}, {} of {TOOLS}. {PUSHING}",
            short(at(CONVERSATION)),
            short(at(TOOLS))
        )],
        paper: vec![PaperComparison::one(
            "Conversation: cache hits of Cache Affinity over Least Loaded",
            PaperFigure::times(1.21, SOURCE),
            rows.ratio(
                CONVERSATION,
                (AFFINITY, LEAST_LOADED),
                at(CONVERSATION),
                hits,
            ),
        )],
        conclusions: rates
            .iter()
            .flat_map(|(group, rate)| conclusions(&rows, group, *rate))
            .collect(),
        sections: vec![
            Section::detail("Hits and balance")
                .text("To the left: even load. Up: warm caches.")
                .charts(charts.into())
                .table(explain::table(&rows, explain::group_and_system)),
        ],
        rows,
        ..Document::default()
    }
}

fn scatter(rows: &Rows, group: &str, rate: f64) -> Chart {
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
    Chart::new(title, "", chart).with_series(SYSTEMS)
}

fn conclusions(rows: &Rows, group: &str, rate: f64) -> Vec<Conclusion> {
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
