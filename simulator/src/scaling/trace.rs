//! Recorded traffic of weeks: SageServe's own week of Office 365 and fourteen days of ServeGen, or their synthetic twins.
//!
//! - `o365-nov2024-input-tokens-per-minute.csv`: input tokens of each minute of a week, by model and tier (SageServe's figures,
//!   MIT licence). Models A and C have few gaps; B and D have long ones, so nothing here is judged by them.
//! - `servegen-m-{large,small}-10min.csv`: requests a second and mean lengths in windows of 600 s (ServeGen, Apache-2.0). Windows
//!   without a request are gaps of the recording; the windows around them replace them.
//!
//! The twins repeat the profile of a day and of a week with noise. Lengths of Office 365 are not published; the means of Azure's
//! conversation trace stand for them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};

use super::traffic::{Point, Series};
use crate::workload::rng::SeededRng;

/// Mean prompt and answer of Azure's conversation trace of 2023, tokens.
pub const CONVERSATION_TOKENS: (f64, f64) = (1_155.0, 211.0);
/// File of Office 365.
const O365: &str = "o365-nov2024-input-tokens-per-minute.csv";
/// Minutes of the week.
const WEEK_MINUTES: usize = 10_080;
/// Windows of ten minutes in fourteen days.
const FORTNIGHT_WINDOWS: usize = 2_016;

/// Profile of a weekday of model C by hours of UTC, mean 1.
const HOURS: [f64; 24] = [
    0.83, 0.68, 0.57, 0.47, 0.40, 0.39, 0.37, 0.34, 0.34, 0.33, 0.34, 0.33, 0.44, 0.79, 1.34, 1.73,
    1.95, 2.03, 2.09, 2.16, 1.92, 1.71, 1.42, 1.03,
];
/// Days of the week from Monday, of the mean weekday.
const DAYS: [f64; 7] = [0.76, 1.04, 1.06, 1.06, 0.85, 0.15, 0.15];
/// Coefficient of variation of a minute around its hour (models A and C), and correlation with the minute before.
const MINUTE_CV: [f64; 2] = [0.46, 0.25];
const MINUTE_CORRELATION: f64 = 0.22;
/// Input tokens a minute of the mean weekday: interactive and non-interactive, models A and C.
const TOKENS_PER_MINUTE: [[f64; 2]; 2] = [[1_300_000.0, 190_000.0], [1_290_000.0, 86_000.0]];
/// Profiles of ServeGen's large and small model by hours, and by days.
const SERVEGEN_HOURS: [[f64; 24]; 2] = [
    [
        0.99, 1.00, 0.99, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.87, 1.05, 1.11, 0.97, 0.98, 1.05,
        1.05, 1.11, 1.08, 1.04, 1.14, 1.13, 1.07, 1.10, 1.09,
    ],
    [
        0.83, 0.70, 0.75, 0.70, 0.71, 0.73, 0.77, 0.87, 1.00, 1.13, 1.11, 1.08, 1.04, 1.06, 1.04,
        1.03, 1.07, 1.06, 0.99, 1.21, 1.43, 1.38, 1.25, 1.05,
    ],
];
const SERVEGEN_DAYS: [[f64; 14]; 2] = [
    [
        1.43, 1.07, 1.03, 0.90, 1.06, 0.93, 1.09, 1.23, 1.18, 0.99, 0.68, 0.65, 0.54, 1.25,
    ],
    [
        0.82, 0.78, 0.95, 0.96, 0.85, 0.95, 0.89, 0.98, 1.02, 1.24, 1.22, 1.23, 1.03, 1.08,
    ],
];
/// Mean requests a second, prompt tokens and answer tokens of ServeGen's large and small model.
const SERVEGEN_MEANS: [[f64; 3]; 2] = [[195.8, 928.0, 141.0], [1_174.0, 119.0, 15.5]];
/// Coefficient of variation of a window around its hour in the twins of ServeGen.
const WINDOW_CV: f64 = 0.12;

/// Traffic of weeks, each over all regions together.
#[derive(Clone, Debug, PartialEq)]
pub struct Traces {
    /// Whether the series are recorded traffic; otherwise they are synthetic twins.
    pub is_recorded: bool,
    /// Office 365, model A: one week of minutes.
    pub o365_a: Series,
    /// Office 365, model C: one week of minutes.
    pub o365_c: Series,
    /// ServeGen, the large model: fourteen days of ten minutes.
    pub servegen_large: Series,
    /// ServeGen, the small model: fourteen days of ten minutes.
    pub servegen_small: Series,
}

impl Traces {
    /// Reads the traces of a directory.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = directory.join(name);
            fs::read_to_string(&path).with_context(|| {
                format!(
                    "cannot read {}; without --traces synthetic twins are played",
                    path.display()
                )
            })
        };
        let minutes = read(O365)?;
        let windows = |name: &str| {
            let text = read(name)?;
            servegen(&text).with_context(|| format!("in {name}"))
        };
        Ok(Self {
            is_recorded: true,
            o365_a: o365(&minutes, 'A').with_context(|| format!("in {O365}"))?,
            o365_c: o365(&minutes, 'C').with_context(|| format!("in {O365}"))?,
            servegen_large: windows("servegen-m-large-10min.csv")?,
            servegen_small: windows("servegen-m-small-10min.csv")?,
        })
    }

    /// Synthetic twins of the traces.
    pub fn twins(seed: u64) -> Self {
        Self {
            is_recorded: false,
            o365_a: o365_twin(0, seed),
            o365_c: o365_twin(1, seed),
            servegen_large: servegen_twin(0, seed),
            servegen_small: servegen_twin(1, seed),
        }
    }
}

/// The columns of a CSV file by name, and its lines as numbers.
fn columns(text: &str, names: &[&str]) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let places = names.iter().map(|name| {
        let place = header.iter().position(|column| column == name);
        place.with_context(|| format!("the header has no column {name}"))
    });
    let places: Vec<usize> = places.collect::<anyhow::Result<_>>()?;
    let number = |line: &str, place: usize| {
        let cell = line.split(',').nth(place).unwrap_or_default().trim();
        // An empty cell is a gap.
        if cell.is_empty() {
            return Ok(f64::NAN);
        }
        let value = cell.parse::<f64>();
        value.with_context(|| format!("{cell:?} is not a number"))
    };
    lines
        .zip(2..)
        .map(|(line, at)| {
            let row = places.iter().map(|&place| number(line, place));
            row.collect::<anyhow::Result<Vec<f64>>>()
                .with_context(|| format!("line {at}"))
        })
        .collect()
}

fn o365(text: &str, model: char) -> anyhow::Result<Series> {
    let names = [
        format!("{model}_interactive"),
        format!("{model}_non_interactive"),
    ];
    let rows = columns(text, &[&names[0], &names[1]])?;
    ensure!(!rows.is_empty(), "there is no line of figures");
    let column = |index: usize| {
        let values = rows.iter().map(|row| row.get(index).copied());
        filled(values.map(|value| value.filter(|value| value.is_finite())))
    };
    let (interactive, batch) = (column(0), column(1));
    let points = interactive.iter().zip(&batch);
    Ok(minutes(
        points.map(|(interactive, batch)| [*interactive, *batch]),
    ))
}

/// Minutes of interactive and non-interactive input tokens as requests of Azure's mean lengths.
fn minutes(tokens: impl Iterator<Item = [f64; 2]>) -> Series {
    let (prompt_tokens, output_tokens) = CONVERSATION_TOKENS;
    let points = tokens.map(|[interactive, batch]| Point {
        interactive_per_s: interactive / prompt_tokens / 60.0,
        batch_per_s: batch / prompt_tokens / 60.0,
        prompt_tokens,
        output_tokens,
    });
    Series {
        interval_s: 60.0,
        points: points.collect(),
    }
}

fn servegen(text: &str) -> anyhow::Result<Series> {
    let names = ["requests_per_s", "input_tokens_mean", "output_tokens_mean"];
    let rows = columns(text, &names)?;
    ensure!(!rows.is_empty(), "there is no line of figures");
    let column = |index: usize| {
        let values = rows.iter().map(|row| row.get(index).copied());
        filled(values.map(|value| value.filter(|value| *value > 0.0)))
    };
    let [rates, prompts, answers] = [0, 1, 2].map(column);
    let points = rates.iter().zip(&prompts).zip(&answers);
    Ok(Series {
        interval_s: 600.0,
        points: points
            .map(|((rate, prompt), answer)| Point {
                interactive_per_s: *rate,
                batch_per_s: 0.0,
                prompt_tokens: *prompt,
                output_tokens: *answer,
            })
            .collect(),
    })
}

/// Gaps filled by the last known value, or the next one at the beginning.
fn filled(values: impl Iterator<Item = Option<f64>>) -> Vec<f64> {
    let mut values: Vec<Option<f64>> = values.collect();
    let mut last = values.iter().flatten().copied().next();
    for value in &mut values {
        last = value.or(last);
        *value = last;
    }
    values.into_iter().map(Option::unwrap_or_default).collect()
}

fn o365_twin(model: usize, seed: u64) -> Series {
    let mut rng = SeededRng::new(seed ^ 0x0365 ^ ((model as u64) << 32));
    let cv = MINUTE_CV.get(model).copied().unwrap_or_default();
    let [interactive, batch] = TOKENS_PER_MINUTE.get(model).copied().unwrap_or_default();
    let mut noise = Noise::new(cv, MINUTE_CORRELATION);
    let tokens = (0..WEEK_MINUTES).map(|minute| {
        let level = profile(&HOURS, minute as f64 / 60.0) * step(&DAYS, minute / 1_440);
        let day = step(&DAYS, minute / 1_440).sqrt();
        [
            interactive * level * noise.next(&mut rng),
            batch * day * rng.exponential(1.0),
        ]
    });
    minutes(tokens.collect::<Vec<_>>().into_iter())
}

fn servegen_twin(model: usize, seed: u64) -> Series {
    let mut rng = SeededRng::new(seed ^ 0x5e7e ^ ((model as u64) << 32));
    let hours = SERVEGEN_HOURS.get(model).copied().unwrap_or_default();
    let days = SERVEGEN_DAYS.get(model).copied().unwrap_or_default();
    let [rate, prompt_tokens, output_tokens] =
        SERVEGEN_MEANS.get(model).copied().unwrap_or_default();
    let mut noise = Noise::new(WINDOW_CV, 0.6);
    let points = (0..FORTNIGHT_WINDOWS).map(|window| Point {
        interactive_per_s: rate
            * profile(&hours, window as f64 / 6.0)
            * profile(&days, window as f64 / 144.0 - 0.5)
            * noise.next(&mut rng),
        batch_per_s: 0.0,
        prompt_tokens,
        output_tokens,
    });
    Series {
        interval_s: 600.0,
        points: points.collect(),
    }
}

/// A periodic profile at a place, interpolated between its values.
fn profile(values: &[f64], place: f64) -> f64 {
    let length = values.len().max(1);
    let place = place.rem_euclid(length as f64);
    let (low, high) = (place as usize % length, (place as usize + 1) % length);
    let share = place.fract();
    step(values, low) * (1.0 - share) + step(values, high) * share
}

fn step(values: &[f64], index: usize) -> f64 {
    values
        .get(index % values.len().max(1))
        .copied()
        .unwrap_or(1.0)
}

/// Log-normal noise of mean 1 that follows its last value.
struct Noise {
    sigma: f64,
    correlation: f64,
    last: f64,
}

impl Noise {
    fn new(cv: f64, correlation: f64) -> Self {
        Self {
            sigma: cv.mul_add(cv, 1.0).ln().sqrt(),
            correlation,
            last: 0.0,
        }
    }

    fn next(&mut self, rng: &mut SeededRng) -> f64 {
        let fresh = (1.0 - self.correlation * self.correlation).sqrt();
        self.last = self.correlation * self.last + fresh * rng.normal();
        (self.sigma * self.last - self.sigma * self.sigma / 2.0).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_take_the_value_before_them() {
        let text = "minute,A_interactive,A_non_interactive\n0,69300,\n1,,6930\n2,138600,0\n";
        let series = o365(text, 'A').unwrap();
        let rates: Vec<f64> = series
            .points
            .iter()
            .map(|point| point.interactive_per_s)
            .collect();
        assert_eq!(rates, [1.0, 1.0, 2.0]);
        let batch: Vec<f64> = series
            .points
            .iter()
            .map(|point| point.batch_per_s)
            .collect();
        assert_eq!(batch, [0.1, 0.1, 0.0]);
        let text = "offset_s,requests_per_s,input_tokens_mean,output_tokens_mean,x\n0,5,100,10,1\n600,0,0,0,1\n1200,7,90,9,1\n";
        let windows = servegen(text).unwrap();
        assert_eq!(windows.points[1].interactive_per_s, 5.0);
        assert_eq!(windows.points[2].prompt_tokens, 90.0);
    }

    #[test]
    fn a_wrong_file_is_an_error_with_its_place() {
        assert!(o365("minute,B_interactive\n0,1\n", 'A').is_err());
        let wrong = "minute,A_interactive,A_non_interactive\n0,x,1\n";
        let error = format!("{:#}", o365(wrong, 'A').unwrap_err());
        assert!(
            error.contains("line 2") && error.contains("\"x\""),
            "{error}"
        );
        let missing = Traces::open(Path::new("/nonexistent")).unwrap_err();
        assert!(format!("{missing:#}").contains("--traces"), "{missing:#}");
    }

    #[test]
    fn twins_have_the_published_profile() {
        let seed = 1;
        let twins = Traces::twins(seed);
        assert_eq!(twins, Traces::twins(seed));
        let mean = |series: &Series, from: usize, to: usize| {
            let points = &series.points[from..to];
            points
                .iter()
                .map(|point| point.interactive_per_s)
                .sum::<f64>()
                / points.len() as f64
        };
        let week = &twins.o365_c;
        assert_eq!(week.points.len(), WEEK_MINUTES);
        let tuesday = 1_440;
        let peak = mean(week, tuesday + 19 * 60, tuesday + 20 * 60);
        let night = mean(week, tuesday + 9 * 60, tuesday + 10 * 60);
        assert!(
            (5.0..8.0).contains(&(peak / night)),
            "seed {seed}: {}",
            peak / night
        );
        let (weekday, sunday) = (mean(week, 1_440, 2_880), mean(week, 8_640, 10_080));
        assert!(
            (0.1..0.2).contains(&(sunday / weekday)),
            "seed {seed}: {}",
            sunday / weekday
        );
        assert_eq!(twins.servegen_large.points.len(), FORTNIGHT_WINDOWS);
    }
}
