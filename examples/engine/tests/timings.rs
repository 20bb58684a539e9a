//! The presets against the measurements they were fitted to: each measured batch is run through the whole model (scheduler,
//! chunks, blocks), not only through the formula.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use isotherm_engine::model::{Engine, EventKind, Preset, Request, RequestId};

/// One set-up, and the mean of what was measured on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Setup {
    prompt_tokens: u32,
    batch: u32,
    output_tokens: u32,
}

/// Seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    prefill: f64,
    decode: f64,
}

/// The error that the presets may have, on average over the set-ups of one file.
const ERROR_MAX: f64 = 0.10;

#[test]
fn the_70b_and_176b_presets_reproduce_splitwise() {
    let Some(table) = read("splitwise.csv") else {
        return;
    };
    for (preset, model, hardware) in [
        (Preset::Llama2_70bA100, "llama2-70b", "a100-80gb"),
        (Preset::Llama2_70bH100, "llama2-70b", "h100-80gb"),
        (Preset::Bloom176bA100, "bloom-176b", "a100-80gb"),
        (Preset::Bloom176bH100, "bloom-176b", "h100-80gb"),
    ] {
        // Milliseconds; the time of one token.
        let measured = select(&table, model, hardware, 8, 1e-3);
        assert!(measured.len() > 10, "the file has {model} on {hardware}");
        check(preset, &measured, |run, setup| Times {
            prefill: run.last_first,
            decode: (run.last_end - run.last_first) / f64::from(setup.output_tokens - 1),
        });
    }
}

#[test]
fn the_8b_preset_reproduces_sageserve() {
    let Some(table) = read("llama-3.1-8b-tp2.csv") else {
        return;
    };
    // Seconds; the time of the whole decode phase, which begins with the first token of the batch.
    let mut measured = select(&table, "Llama-3.1-8B", "a100-80gb", 2, 1.0);
    // Past 8,192 tokens the measured engine fell out of its CUDA graphs and took twice as long a token.
    measured.retain(|(setup, _)| setup.prompt_tokens + setup.output_tokens <= 8_192);
    check(Preset::Llama31_8b2xA100, &measured, |run, _| Times {
        prefill: run.first_first,
        decode: run.last_end - run.first_first,
    });
}

#[test]
fn the_l4_preset_is_the_replica_of_skylb() {
    let run = simulate(
        Preset::Llama31_8bL4,
        Setup {
            prompt_tokens: 512,
            batch: 1,
            output_tokens: 2,
        },
    );
    assert!(
        (run.first_first - 0.3).abs() < 0.01,
        "512 tokens take about 300 ms (section 2.1), not {}",
        run.first_first
    );
    let config = Preset::Llama31_8bL4.config();
    let requests = |tokens| config.blocks * config.block_tokens / tokens;
    assert!(
        requests(1_700) >= 19 && requests(650) <= 53,
        "20 to 50 chats fit the cache (section 3.3)"
    );
}

/// When things happened in a run, seconds.
struct Run {
    first_first: f64,
    last_first: f64,
    last_end: f64,
}

fn simulate(preset: Preset, setup: Setup) -> Run {
    let mut engine = Engine::new(preset.config());
    for id in 0..setup.batch {
        engine.submit(
            Duration::ZERO,
            Request {
                id: RequestId(u64::from(id)),
                prompt_tokens: setup.prompt_tokens,
                output_tokens: setup.output_tokens,
                blocks: Arc::from([]),
                stream_interval_tokens: None,
            },
        );
    }
    let (mut firsts, mut ends) = (Vec::new(), Vec::new());
    while let Some(at) = engine.poll_timeout() {
        engine.handle_timeout(at);
        while let Some(event) = engine.poll_event() {
            match event.kind {
                EventKind::FirstToken { .. } => firsts.push(event.at.as_secs_f64()),
                EventKind::Finished(_) => ends.push(event.at.as_secs_f64()),
                other => panic!("{setup:?}: {other:?}"),
            }
        }
    }
    assert_eq!(ends.len(), setup.batch as usize);
    Run {
        first_first: firsts[0],
        last_first: firsts[firsts.len() - 1],
        last_end: ends[ends.len() - 1],
    }
}

fn check(preset: Preset, measured: &[(Setup, Times)], times: impl Fn(&Run, &Setup) -> Times) {
    let (mut prefill, mut decode) = (Vec::new(), Vec::new());
    for (setup, real) in measured {
        let model = times(&simulate(preset, *setup), setup);
        prefill.push((model.prefill / real.prefill - 1.0).abs());
        decode.push((model.decode / real.decode - 1.0).abs());
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    let most = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    println!(
        "{preset}: {} set-ups; mean error of prefill {:.1} % (largest {:.0} %), of decode {:.1} % (largest {:.0} %)",
        measured.len(),
        100.0 * mean(&prefill),
        100.0 * most(&prefill),
        100.0 * mean(&decode),
        100.0 * most(&decode),
    );
    assert!(
        mean(&prefill) < ERROR_MAX,
        "prefill of {preset}: {prefill:.2?}"
    );
    assert!(
        mean(&decode) < ERROR_MAX,
        "decode of {preset}: {decode:.2?}"
    );
}

/// The rows of a file as maps of column to value; `None`, and a line that says so, where the file is not there.
fn read(name: &str) -> Option<Vec<BTreeMap<String, String>>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("../shared/data/engine-timings").join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        println!(
            "skipped: the measurements ({name}) are not part of the project and not on this machine"
        );
        return None;
    };
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next()?.split(',').collect();
    let row = |line: &str| {
        columns
            .iter()
            .zip(line.split(','))
            .map(|(&c, v)| (c.to_owned(), v.to_owned()))
            .collect()
    };
    Some(lines.map(row).collect())
}

fn select(
    table: &[BTreeMap<String, String>],
    model: &str,
    hardware: &str,
    gpus: u32,
    unit_seconds: f64,
) -> Vec<(Setup, Times)> {
    let mut groups: BTreeMap<Setup, Vec<Times>> = BTreeMap::new();
    for row in table {
        let integer = |column: &str| row[column].parse::<u32>().unwrap();
        let seconds = |column: &str| row[column].parse::<f64>().unwrap() * unit_seconds;
        if row["model"] == model
            && row["hardware"] == hardware
            && integer("tensor_parallel") == gpus
        {
            let setup = Setup {
                prompt_tokens: integer("prompt_size"),
                batch: integer("batch_size"),
                output_tokens: integer("token_size"),
            };
            groups.entry(setup).or_default().push(Times {
                prefill: seconds("prompt_time"),
                decode: seconds("token_time"),
            });
        }
    }
    let mean = |times: &[Times], part: fn(&Times) -> f64| {
        times.iter().map(part).sum::<f64>() / times.len() as f64
    };
    groups
        .into_iter()
        .map(|(setup, times)| {
            (
                setup,
                Times {
                    prefill: mean(&times, |t| t.prefill),
                    decode: mean(&times, |t| t.decode),
                },
            )
        })
        .collect()
}
