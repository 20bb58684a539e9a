//! SageServe, Figure 17: models of the forecast; and what a forecast costs when its misses are paid for.
//!
//! The paper's figure is the error of the next hour over the training window. Errors of both signs are not equal: what a forecast lacks is latency,
//! what it has too much is money. So the second table scales each forecast in hindsight until 1 % of the demand is unmet, and shows the capacity
//! over the demand. The forecasts are those of the planning core, which is told the minutes one after the other. Times to fit are not in the
//! report: it has the same bytes on every machine.

mod hindsight;

use isotherm_report::number::{hundredths, percent};
use isotherm_report::{Conclusion, Section, Table};
use isotherm_simulator::scaling::forecast::{arima, in_sample};
use isotherm_simulator::scaling::trace::Traces;
use isotherm_simulator::scaling::traffic::Series;

use self::hindsight::{Hindsight, MODELS};
use crate::context::Context;
use crate::document::Document;
use crate::paper::Source;
use crate::row::Row;
use crate::rows::Rows;
use crate::scaling::scenario;

/// Training windows of the figure, minutes.
const WINDOWS: [usize; 4] = [60, 90, 120, 180];
const HOUR: usize = 60;
/// Capacity over demand of the design, on the recorded traces: O365 A, O365 C, ServeGen large, small.
const DESIGN: [(&str, [f64; 4]); 6] = [
    ("knows the future", [1.34, 1.14, 1.11, 1.10]),
    ("best fixed fleet", [2.39, 3.04, 1.73, 1.68]),
    ("last_peak", [1.74, 1.46, 1.38, 1.45]),
    ("arima", [1.70, 1.29, 1.52, 1.53]),
    ("seasonal", [1.73, 1.22, 1.66, 1.95]),
    ("max", [1.71, 1.26, 1.45, 1.41]),
];
/// Relative difference that counts as equal.
const SAME: f64 = 0.05;
const SOURCE: Source =
    Source("SageServe, section 6.3: errors of the published code over 12 series");

/// Runs it.
pub(crate) fn run(context: &Context) -> Document {
    let traces = scenario::traces(context);
    let series = [
        ("O365 A", &traces.o365_a),
        ("O365 C", &traces.o365_c),
        ("ServeGen large", &traces.servegen_large),
        ("ServeGen small", &traces.servegen_small),
    ];
    let minutes = series.map(|(name, series)| (name, demand(series, context.effort.quick)));
    let hindsight = context.map(&minutes, |(_, minutes)| Hindsight::of(minutes));
    let errors = context.map(&minutes[..2], |(_, minutes)| errors(minutes));
    let mut rows = Vec::new();
    for ((name, _), hindsight) in minutes.iter().zip(&hindsight) {
        rows.extend(hindsight.models.iter().map(|(model, figures)| {
            row(
                name,
                model,
                [
                    ("capacity_over_demand", figures.ratio),
                    ("short_share", figures.short),
                    ("short_share_scaled", figures.short_upper),
                ],
            )
        }));
    }
    for ((name, _), errors) in minutes.iter().zip(&errors) {
        rows.extend(errors.iter().map(|(model, error)| {
            row(name, model, [("error_share", *error), ("", 0.0), ("", 0.0)])
        }));
    }
    let in_sample: Vec<f64> = errors
        .iter()
        .filter_map(|errors| errors.last())
        .map(|(_, error)| *error)
        .collect();
    Document {
        about: vec![
            scenario::about(&traces),
            "Demand of each minute: input tokens a second of Office 365, requests a second of ServeGen. Error: the mean of |forecast - actual| over the mean of the actual, for the 60 minutes after each hour.".into(),
        ],
        paper: vec![
            SOURCE
                .share("error of the in-sample one-minute forecast", (0.16, 0.236), &in_sample)
                .because("The paper's twelve series are regions; these are sums of three regions, with gaps filled."),
        ],
        conclusions: conclusions(&traces, &hindsight, context.effort.quick),
        sections: vec![
            Section::new("Error by training window (Figure 17)").table(error_table(&errors)),
            Section::new("Capacity over demand with 1 % of the demand unmet").table(hindsight_table(&minutes.each_ref().map(|(name, _)| *name), &hindsight)),
        ],
        rows: Rows(rows),
        ..Document::default()
    }
}

fn row(group: &str, system: &str, more: [(&'static str, f64); 3]) -> Row {
    Row {
        group: group.to_owned(),
        system: system.to_owned(),
        x: 0.0,
        seed: 0,
        summary: None,
        more: more
            .into_iter()
            .filter(|(name, _)| !name.is_empty())
            .collect(),
    }
}

/// Demand of each minute: input tokens a second where the trace counts tokens, else requests a second.
fn demand(series: &Series, is_quick: bool) -> Vec<f64> {
    let days = if is_quick { 3.0 } else { f64::INFINITY };
    let minutes = (series.length_s() / 60.0).min(days * 1_440.0) as usize;
    let counts_tokens = series.interval_s <= 60.0;
    // Windows of ten minutes stand as they are: interpolation would look ahead.
    let at = |minute: usize| {
        let place = (minute as f64 * 60.0 / series.interval_s) as usize;
        series.points.get(place).map_or(0.0, |point| {
            if counts_tokens {
                point.input_tokens_per_s()
            } else {
                point.interactive_per_s
            }
        })
    };
    (0..minutes).map(at).collect()
}

/// Errors of each model over the hours of a series.
fn errors(minutes: &[f64]) -> Vec<(String, f64)> {
    let [.., start] = WINDOWS;
    let over = |forecast: &dyn Fn(&[f64]) -> Vec<f64>| {
        let (mut wrong, mut all) = (0.0, 0.0);
        for at in (start..minutes.len().saturating_sub(HOUR)).step_by(HOUR) {
            let (past, coming) = minutes.split_at(at);
            for (forecast, actual) in forecast(past).iter().zip(coming) {
                wrong += (forecast - actual).abs();
                all += actual;
            }
        }
        wrong / all
    };
    let mut errors = Vec::new();
    for window in WINDOWS {
        errors.push((
            format!("ARIMA(3,1,2), {window} min"),
            over(&|past| arima(past, window, HOUR)),
        ));
    }
    for window in [WINDOWS[0], WINDOWS[3]] {
        let mean = |past: &[f64]| {
            let recent = past
                .get(past.len().saturating_sub(window)..)
                .unwrap_or(past);
            vec![recent.iter().sum::<f64>() / recent.len().max(1) as f64; HOUR]
        };
        errors.push((format!("moving average, {window} min"), over(&mean)));
    }
    let known = in_sample(minutes);
    let wrong: f64 = minutes
        .iter()
        .zip(&known)
        .map(|(actual, forecast)| (actual - forecast).abs())
        .sum();
    errors.push((
        "published code: in-sample, one minute ahead".to_owned(),
        wrong / minutes.iter().sum::<f64>(),
    ));
    errors
}

fn error_table(errors: &[Vec<(String, f64)>]) -> Table {
    let names = errors
        .first()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone());
    let table = Table::new(["model", "O365 A", "O365 C"]).with_rows(names.enumerate().map(
        |(index, name)| {
            let cells = errors.iter().map(|errors| {
                errors
                    .get(index)
                    .map_or_else(String::new, |(_, error)| percent(*error))
            });
            core::iter::once(name).chain(cells).collect::<Vec<_>>()
        },
    ));
    table.headline(&["model", "O365 A", "O365 C"], |_| true)
}

fn hindsight_table(names: &[&str], all: &[Hindsight]) -> Table {
    let columns =
        core::iter::once("model".to_owned()).chain(names.iter().map(|name| (*name).to_owned()));
    let columns = columns.chain([
        "hours more than 10 % short".to_owned(),
        "the same with the conformal factor".to_owned(),
    ]);
    let table = Table::new(columns).with_rows(MODELS.map(|model| {
        let figures = || all.iter().filter_map(|one| one.model(model));
        let range = |values: Vec<f64>| {
            let finite = || values.iter().copied().filter(|value| value.is_finite());
            let (low, high) = (
                finite().fold(f64::INFINITY, f64::min),
                finite().fold(0.0, f64::max),
            );
            if low.is_finite() {
                format!("{} to {}", percent(low), percent(high))
            } else {
                "-".to_owned()
            }
        };
        let ratios = figures()
            .map(|one| hundredths(one.ratio))
            .collect::<Vec<_>>();
        let short = [
            range(figures().map(|one| one.short).collect()),
            range(figures().map(|one| one.short_upper).collect()),
        ];
        core::iter::once(model.to_owned())
            .chain(ratios)
            .chain(short)
            .collect::<Vec<_>>()
    }));
    let shown: Vec<&str> = ["model"].into_iter().chain(names.iter().copied()).collect();
    table.headline(&shown, |_| true)
}

fn conclusions(traces: &Traces, all: &[Hindsight], is_quick: bool) -> Vec<Conclusion> {
    if !traces.is_recorded || is_quick {
        return vec![Conclusion::note(
            "The figures of the design are those of the recorded traces in full length; nothing is compared here.",
        )];
    }
    let mut differing = Vec::new();
    let names = ["O365 A", "O365 C", "ServeGen large", "ServeGen small"];
    for (model, expected) in DESIGN {
        for ((name, hindsight), expected) in names.iter().zip(all).zip(expected) {
            let found = hindsight
                .model(model)
                .map_or(f64::NAN, |figures| figures.ratio);
            if found.is_nan() || (found / expected - 1.0).abs() > SAME {
                differing.push(format!(
                    "{model} on {name}: {} instead of {}",
                    hundredths(found),
                    hundredths(expected)
                ));
            }
        }
    }
    let text = "Capacity over demand is within 5 % of the design's table, in every cell";
    let claim = Conclusion::claim(text, differing.is_empty());
    vec![if differing.is_empty() {
        claim
    } else {
        claim.measured(differing.join("; "))
    }]
}
