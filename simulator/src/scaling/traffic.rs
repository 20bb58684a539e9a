//! Traffic of a model in one region: rates and lengths over time.
//!
//! Rates are requests a second, by tier. Traces that count tokens become requests by the mean prompt. Between two points
//! of a trace with windows of ten minutes the rate is interpolated; minutes stand as they are.

/// Traffic over time, at equal intervals from time zero.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Interval between two points in seconds.
    pub interval_s: f64,
    /// Traffic of each interval.
    pub points: Vec<Point>,
}

/// Traffic of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Interactive requests a second.
    pub interactive_per_s: f64,
    /// Non-interactive requests a second.
    pub batch_per_s: f64,
    /// Mean prompt length in tokens.
    pub prompt_tokens: f64,
    /// Mean answer length in tokens.
    pub output_tokens: f64,
}

/// Intervals from this length on are interpolated, s.
const INTERPOLATED_S: f64 = 300.0;

impl Series {
    /// Duration of the series in seconds.
    pub fn length_s(&self) -> f64 {
        self.interval_s * self.points.len() as f64
    }

    /// Traffic at a time; the last point holds after the end.
    pub fn at(&self, time_s: f64) -> Point {
        let place = (time_s / self.interval_s.max(1e-9)).max(0.0);
        let point = |index: usize| {
            let last = self.points.len().saturating_sub(1);
            self.points.get(index.min(last)).copied()
        };
        if self.interval_s < INTERPOLATED_S {
            return point(place as usize).unwrap_or_default();
        }
        // A window's mean belongs to its middle.
        let place = (place - 0.5).max(0.0);
        let (before, after) = (point(place as usize), point(place as usize + 1));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        before.towards(&after, place.fract())
    }

    /// The series with every rate multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        self.mapped(|point| Point {
            interactive_per_s: point.interactive_per_s * factor,
            batch_per_s: point.batch_per_s * factor,
            ..point
        })
    }

    /// The part of the series from one time to another, in seconds.
    pub fn between(&self, from_s: f64, to_s: f64) -> Self {
        let index = |time_s: f64| (time_s / self.interval_s.max(1e-9)) as usize;
        let points = self.points.iter().take(index(to_s)).skip(index(from_s));
        Self {
            interval_s: self.interval_s,
            points: points.copied().collect(),
        }
    }

    /// The series with every point changed.
    pub fn mapped(&self, change: impl Fn(Point) -> Point) -> Self {
        Self {
            interval_s: self.interval_s,
            points: self.points.iter().copied().map(change).collect(),
        }
    }
}

impl Point {
    /// Interactive prompt tokens a second.
    pub fn input_tokens_per_s(&self) -> f64 {
        self.interactive_per_s * self.prompt_tokens
    }

    /// The point with interactive requests alone.
    pub fn without_batch(self) -> Self {
        Self {
            batch_per_s: 0.0,
            ..self
        }
    }

    fn towards(&self, other: &Self, share: f64) -> Self {
        let mix = |from: f64, to: f64| from + (to - from) * share;
        Self {
            interactive_per_s: mix(self.interactive_per_s, other.interactive_per_s),
            batch_per_s: mix(self.batch_per_s, other.batch_per_s),
            prompt_tokens: mix(self.prompt_tokens, other.prompt_tokens),
            output_tokens: mix(self.output_tokens, other.output_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(interval_s: f64, rates: &[f64]) -> Series {
        let point = |&rate: &f64| Point {
            interactive_per_s: rate,
            batch_per_s: rate / 4.0,
            prompt_tokens: 1_000.0,
            output_tokens: 200.0,
        };
        Series {
            interval_s,
            points: rates.iter().map(point).collect(),
        }
    }

    #[test]
    fn minutes_are_steps_and_long_windows_are_interpolated() {
        let minutes = series(60.0, &[1.0, 3.0]);
        assert_eq!(minutes.at(59.0).interactive_per_s, 1.0);
        assert_eq!(minutes.at(61.0).interactive_per_s, 3.0);
        assert_eq!(minutes.at(1e6).interactive_per_s, 3.0, "after the end");
        let windows = series(600.0, &[1.0, 3.0]);
        assert_eq!(windows.at(300.0).interactive_per_s, 1.0);
        assert_eq!(windows.at(600.0).interactive_per_s, 2.0);
        assert_eq!(series(60.0, &[]).at(0.0), Point::default());
    }
}
