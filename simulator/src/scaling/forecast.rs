//! Forecasts of SageServe: those of its published code, which know the future, and those by its text.

use isotherm_planner::Arima;

/// One-step forecasts of every point of a series by an ARIMA(3,1,2) that was fitted to the whole series, as the paper's published
/// code makes them. The future leaks twice: by the fit, and by forecasting each minute from the one before it.
pub fn in_sample(series: &[f64]) -> Vec<f64> {
    let Some(model) = Arima::fit(series) else {
        return series.to_vec();
    };
    let mut forecasts: Vec<f64> = Vec::with_capacity(series.len());
    // The latest first.
    let (mut changes, mut errors) = ([0.0; 3], [0.0; 2]);
    for (at, value) in series.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| series.get(before));
        let Some(before) = before else {
            forecasts.push(*value);
            continue;
        };
        let expected = dot(&model.ar, &changes) + dot(&model.ma, &errors);
        forecasts.push((before + expected).max(0.0));
        let change = value - before;
        changes = [change, changes[0], changes[1]];
        errors = [change - expected, errors[0]];
    }
    forecasts
}

/// Forecasts of the coming minutes by an ARIMA(3,1,2) that was fitted to the last hour: the paper's without knowledge of the future.
pub fn arima_60(series: &[f64], points: usize) -> Vec<f64> {
    let recent = series
        .get(series.len().saturating_sub(60)..)
        .unwrap_or(series);
    let last = recent.last().copied().unwrap_or_default();
    let most = recent.iter().copied().fold(0.0, f64::max) * 4.0;
    match Arima::fit(recent) {
        Some(model) => {
            let forecasts = model.forecast(recent, points).into_iter();
            forecasts.map(|value| value.clamp(0.0, most)).collect()
        }
        None => vec![last; points],
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::rng::SeededRng;

    fn series(seed: u64) -> Vec<f64> {
        let mut rng = SeededRng::new(seed);
        let level = |minute: f64| 1_000.0 + 800.0 * (minute / 240.0).sin();
        (0..2_880)
            .map(|minute| level(f64::from(minute)) * (1.0 + 0.1 * rng.normal()))
            .collect()
    }

    fn error(series: &[f64], forecasts: &[f64]) -> f64 {
        let errors = series
            .iter()
            .zip(forecasts)
            .map(|(value, forecast)| (value - forecast).abs());
        errors.sum::<f64>() / series.iter().sum::<f64>()
    }

    #[test]
    fn a_forecast_that_knows_the_future_is_closer() {
        let seed = 3;
        let series = series(seed);
        let known = error(&series, &in_sample(&series));
        assert!(known < 0.12, "seed {seed}: {known}");
        let ahead = (60..series.len() - 60)
            .step_by(60)
            .map(|at| error(&series[at..at + 60], &arima_60(&series[..at], 60)));
        let ahead: Vec<f64> = ahead.collect();
        let ahead = ahead.iter().sum::<f64>() / ahead.len() as f64;
        assert!(ahead > known, "seed {seed}: {ahead} against {known}");
    }
}
