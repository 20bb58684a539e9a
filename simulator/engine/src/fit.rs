//! Errors of the presets against the measurements that they were fitted to.
//!
//! Each measured batch is run through the whole model (scheduler, chunks, blocks), not only through the formula. The
//! measurements are other people's and not part of the project; [`presets`](crate::model::Preset) names the sources.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::model::{Engine, EventKind, Preset, Request, RequestId};

/// Source of a preset's measurements, and the meaning of their figures.
struct Source {
    preset: Preset,
    file: &'static str,
    model: &'static str,
    hardware: &'static str,
    gpus: u32,
    /// Seconds in the unit of the file.
    unit_s: f64,
    /// The time of the first token is that of the batch's first sequence, and the time of tokens that of the whole decode
    /// phase; else the last sequence's, and one token's.
    whole_decode: bool,
    /// Longer sequences are left out.
    context_tokens_max: u32,
}

const fn splitwise(preset: Preset, model: &'static str, hardware: &'static str) -> Source {
    Source {
        preset,
        file: "splitwise.csv",
        model,
        hardware,
        gpus: 8,
        unit_s: 1e-3,
        whole_decode: false,
        context_tokens_max: u32::MAX,
    }
}

/// All but the L4, which is derived.
const SOURCES: [Source; 5] = [
    splitwise(Preset::Llama2_70bA100, "llama2-70b", "a100-80gb"),
    splitwise(Preset::Llama2_70bH100, "llama2-70b", "h100-80gb"),
    splitwise(Preset::Bloom176bA100, "bloom-176b", "a100-80gb"),
    splitwise(Preset::Bloom176bH100, "bloom-176b", "h100-80gb"),
    Source {
        preset: Preset::Llama31_8b2xA100,
        file: "llama-3.1-8b-tp2.csv",
        model: "Llama-3.1-8B",
        hardware: "a100-80gb",
        gpus: 2,
        unit_s: 1.0,
        whole_decode: true,
        // Past it the measured engine fell out of its CUDA graphs and took twice as long a token.
        context_tokens_max: 8_192,
    },
];

/// Relative errors of a preset against its measurements; 0.1 is 10 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelFit {
    /// The preset.
    pub preset: Preset,
    /// Number of measured set-ups.
    pub setups: usize,
    /// Error of the time to the first token.
    pub prefill: FitError,
    /// Error of the time of tokens after it.
    pub decode: FitError,
}

/// The absolute values of relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitError {
    /// Mean over the set-ups.
    pub mean: f64,
    /// Largest.
    pub max: f64,
}

/// Measured set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Batch {
    /// Length of every prompt, in tokens.
    pub prompt_tokens: u32,
    /// Prompts at once.
    pub sequences: u32,
    /// Length of every answer, in tokens.
    pub output_tokens: u32,
}

/// When things happen in a batch, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Run {
    /// The first token of the sequence that is first.
    pub first_first_s: f64,
    /// The first token of the sequence that is last.
    pub last_first_s: f64,
    /// The end of the last.
    pub last_end_s: f64,
}

#[derive(Clone, Copy, Debug)]
struct Times {
    prefill_s: f64,
    decode_s: f64,
}

impl fmt::Display for ModelFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} set-ups; mean error of prefill {:.1} % (largest {:.0} %), of decode {:.1} % (largest {:.0} %)",
            self.preset,
            self.setups,
            100.0 * self.prefill.mean,
            100.0 * self.prefill.max,
            100.0 * self.decode.mean,
            100.0 * self.decode.max,
        )
    }
}

/// Compares every preset that was fitted with the measurements in this directory.
///
/// # Errors
/// A file cannot be read, or has not what it should.
pub fn fits(directory: &Path) -> Result<Vec<ModelFit>, String> {
    SOURCES
        .iter()
        .map(|source| fit(source, directory))
        .collect()
}

fn fit(source: &Source, directory: &Path) -> Result<ModelFit, String> {
    let path = directory.join(source.file);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let measured = select(&text, source)
        .ok_or_else(|| format!("{} is not the table that it should be", path.display()))?;
    if measured.is_empty() {
        return Err(format!("{} has no {}", path.display(), source.model));
    }
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for (batch, real) in &measured {
        let run = simulate(source.preset, *batch);
        let model = if source.whole_decode {
            Times {
                prefill_s: run.first_first_s,
                decode_s: run.last_end_s - run.first_first_s,
            }
        } else {
            let steps = f64::from(batch.output_tokens.saturating_sub(1).max(1));
            Times {
                prefill_s: run.last_first_s,
                decode_s: (run.last_end_s - run.last_first_s) / steps,
            }
        };
        prefill.push((model.prefill_s / real.prefill_s - 1.0).abs());
        decode.push((model.decode_s / real.decode_s - 1.0).abs());
    }
    Ok(ModelFit {
        preset: source.preset,
        setups: measured.len(),
        prefill: FitError::of(&prefill),
        decode: FitError::of(&decode),
    })
}

impl FitError {
    fn of(errors: &[f64]) -> Self {
        Self {
            mean: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            max: errors.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Runs a batch whose prompts share nothing, all of which are there at the start.
#[must_use]
pub fn simulate(preset: Preset, batch: Batch) -> Run {
    let mut engine = Engine::new(preset.config());
    for id in 0..batch.sequences {
        engine.submit(
            Duration::ZERO,
            Request {
                id: RequestId(u64::from(id)),
                prompt_tokens: batch.prompt_tokens,
                output_tokens: batch.output_tokens,
                blocks: Arc::from([]),
                stream_interval_tokens: None,
            },
        );
    }
    let mut first = None;
    let mut run = Run::default();
    while let Some(at) = engine.poll_timeout() {
        engine.handle_timeout(at);
        while let Some(event) = engine.poll_event() {
            let at_s = event.at.as_secs_f64();
            match event.kind {
                EventKind::FirstToken { .. } => {
                    first.get_or_insert(at_s);
                    run.last_first_s = at_s;
                }
                EventKind::Finished(_) => run.last_end_s = at_s,
                EventKind::Tokens { .. } | EventKind::Rejected(_) => {}
            }
        }
    }
    run.first_first_s = first.unwrap_or_default();
    run
}

/// The means of what was measured of this source, by set-up.
fn select(text: &str, source: &Source) -> Option<Vec<(Batch, Times)>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next()?.split(',').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name);
    let [
        model,
        hardware,
        gpus,
        prompt,
        sequences,
        output,
        prefill,
        decode,
    ] = [
        column("model")?,
        column("hardware")?,
        column("tensor_parallel")?,
        column("prompt_size")?,
        column("batch_size")?,
        column("token_size")?,
        column("prompt_time")?,
        column("token_time")?,
    ];
    let mut groups: BTreeMap<Batch, Vec<Times>> = BTreeMap::new();
    for line in lines {
        let row: Vec<&str> = line.split(',').collect();
        let is = |column: usize, value: &str| row.get(column).is_some_and(|cell| *cell == value);
        let integer = |column: usize| row.get(column)?.parse::<u32>().ok();
        let seconds = |column: usize| Some(row.get(column)?.parse::<f64>().ok()? * source.unit_s);
        if !is(model, source.model) || !is(hardware, source.hardware) {
            continue;
        }
        if integer(gpus)? != source.gpus {
            continue;
        }
        let batch = Batch {
            prompt_tokens: integer(prompt)?,
            sequences: integer(sequences)?,
            output_tokens: integer(output)?,
        };
        if batch.prompt_tokens.saturating_add(batch.output_tokens) > source.context_tokens_max {
            continue;
        }
        groups.entry(batch).or_default().push(Times {
            prefill_s: seconds(prefill)?,
            decode_s: seconds(decode)?,
        });
    }
    let mean = |times: &[Times], part: fn(&Times) -> f64| {
        times.iter().map(part).sum::<f64>() / times.len() as f64
    };
    let groups = groups.into_iter().map(|(batch, times)| {
        let times = Times {
            prefill_s: mean(&times, |times| times.prefill_s),
            decode_s: mean(&times, |times| times.decode_s),
        };
        (batch, times)
    });
    Some(groups.collect())
}
