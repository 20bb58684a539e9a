//! Forecasts against statsmodels and pmdarima, and integer programs against HiGHS.
//!
//! `ISOTHERM_PYTHON` names a Python with the packages of `tests/requirements.txt`; without it, `python3` is asked. Where the packages
//! are absent, each test says so and is skipped.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

mod support;

use std::io::Write as _;
use std::process::{Command, Stdio};

use isotherm_planner::{Arima, Cell, Program};
use serde_json::{Value, json};
use support::{Noise, profile};

/// Points of a training window, and steps of a forecast.
const TRAINING: usize = 60;
const STEPS: usize = 12;

/// Answer of the packages; `None` if they are absent.
fn ask(request: &Value) -> Option<Value> {
    let python = std::env::var_os("ISOTHERM_PYTHON").unwrap_or_else(|| "python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/yardsticks.py");
    let run = |request: &Value| -> Result<Value, String> {
        let mut child = Command::new(&python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut input = child.stdin.take().expect("piped");
        input
            .write_all(request.to_string().as_bytes())
            .map_err(|error| error.to_string())?;
        drop(input);
        let output = child
            .wait_with_output()
            .map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout)
            .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    match run(&json!({ "what": "versions" })) {
        Ok(versions) => println!("compared with {versions}"),
        Err(error) => {
            let last = error.lines().last().unwrap_or_default();
            eprintln!(
                "SKIPPED: {} has no statsmodels, pmdarima and highspy: {last}",
                python.display()
            );
            return None;
        }
    }
    Some(run(request).expect("the packages answer"))
}

/// A day's profile with noise that fades, in points of five minutes.
fn series(noise: &mut Noise, points: usize, start: u64) -> Vec<f64> {
    let mut shock = 0.0;
    let points = (0..points as u64).map(|point| {
        shock = 0.6 * shock + 0.10 * noise.normal();
        let level = 1_000.0 * profile(start + 5 * point);
        (level * (1.0 + shock)).max(1.0)
    });
    points.collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    let values = value.as_array().expect("an array").iter();
    values
        .map(|value| value.as_f64().expect("a number"))
        .collect()
}

#[test]
fn forecasts_with_given_coefficients_are_those_of_statsmodels() {
    let coefficients = [
        ([0.5, -0.2, 0.1], [0.3, 0.2]),
        ([0.2, 0.1, 0.05], [-0.4, 0.1]),
        ([-0.6, 0.2, 0.1], [0.5, -0.3]),
        ([0.9, -0.3, 0.05], [-0.5, 0.2]),
    ];
    let mut noise = Noise(11);
    let cases: Vec<(Arima, Vec<f64>)> = coefficients
        .into_iter()
        .enumerate()
        .map(|(at, (ar, ma))| {
            (
                Arima { ar, ma },
                series(&mut noise, TRAINING, 360 * at as u64),
            )
        })
        .collect();
    let request: Vec<Value> = cases
        .iter()
        .map(|(model, series)| json!({ "ar": model.ar, "ma": model.ma, "series": series }))
        .collect();
    let Some(answer) = ask(&json!({ "what": "given", "steps": STEPS, "cases": request })) else {
        return;
    };
    for ((model, series), theirs) in cases.iter().zip(answer.as_array().expect("an array")) {
        let ours = model.forecast(series, STEPS);
        for (ours, theirs) in ours.iter().zip(numbers(theirs)) {
            assert!(
                (ours - theirs).abs() <= 1e-3 * theirs.abs(),
                "{model:?}: {ours} {theirs}"
            );
        }
    }
}

#[test]
fn fitted_forecasts_err_as_much_as_those_of_statsmodels_and_pmdarima() {
    let mut noise = Noise(23);
    let whole = series(&mut noise, 5 * 288, 0);
    let starts: Vec<usize> = (0..100).map(|at| at * 13).collect();
    let windows: Vec<&[f64]> = starts
        .iter()
        .map(|start| &whole[*start..start + TRAINING])
        .collect();
    let Some(answer) = ask(&json!({ "what": "fitted", "steps": STEPS, "windows": windows })) else {
        return;
    };
    let error = |forecasts: &[Vec<f64>]| {
        let (mut error, mut sum) = (0.0, 0.0);
        for (start, forecast) in starts.iter().zip(forecasts) {
            for (actual, forecast) in whole[start + TRAINING..].iter().zip(forecast) {
                error += (actual - forecast).abs();
                sum += actual;
            }
        }
        error / sum
    };
    let ours: Vec<Vec<f64>> = windows
        .iter()
        .map(|window| Arima::fit(window).expect("a model").forecast(window, STEPS))
        .collect();
    let theirs = |name: &str| -> Vec<Vec<f64>> {
        answer[name]
            .as_array()
            .expect("an array")
            .iter()
            .map(numbers)
            .collect()
    };
    let errors = [
        error(&ours),
        error(&theirs("statsmodels")),
        error(&theirs("pmdarima")),
    ];
    println!("weighted absolute percentage errors of ours, statsmodels, pmdarima: {errors:?}");
    assert!(
        errors[0] <= errors[1] + 0.02 && errors[0] <= errors[2] + 0.02,
        "{errors:?}"
    );
}

/// A program of four models in three regions, with two kinds of GPU and a bound on each.
fn program(noise: &mut Noise) -> Program {
    let mut program = Program::default();
    let between = |noise: &mut Noise, low: f64, high: f64| low + (high - low) * noise.uniform();
    for model in 0..4 {
        program.local_share.insert(model, between(noise, 0.4, 1.0));
        for region in 0..3 {
            program
                .demand
                .insert((model, region), between(noise, 0.0, 20.0));
            for kind in 0..2 {
                program.cells.push(Cell {
                    model,
                    region,
                    kind,
                    replicas: between(noise, 0.0, 20.0) as u32,
                    capacity: between(noise, 0.5, 2.0),
                    price: between(noise, 1.0, 4.0),
                    startup_price: between(noise, 0.0, 1.0),
                    min: between(noise, 0.0, 3.0) as u32,
                    max: 40,
                    gpus: 1 + model as u32 % 3,
                });
            }
        }
    }
    for region in 0..3 {
        for kind in 0..2 {
            program
                .gpus_max
                .insert((region, kind), between(noise, 40.0, 120.0) as u32);
        }
    }
    program
}

fn to_json(program: &Program) -> Value {
    let cells: Vec<Value> = program
        .cells
        .iter()
        .map(|cell| {
            json!({
                "model": cell.model, "region": cell.region, "kind": cell.kind, "replicas": cell.replicas,
                "capacity": cell.capacity, "price": cell.price, "startup_price": cell.startup_price,
                "min": cell.min, "max": cell.max, "gpus": cell.gpus,
            })
        })
        .collect();
    let mut rows = Vec::new();
    for model in program.local_share.keys() {
        let demands = program.demand.iter().filter(|((of, _), _)| of == model);
        let total: f64 = demands.clone().map(|(_, demand)| demand).sum();
        rows.push(json!({ "model": model, "region": null, "demand": total }));
        for ((_, region), demand) in demands {
            let demand = demand * program.local_share[model];
            rows.push(json!({ "model": model, "region": region, "demand": demand }));
        }
    }
    let caps = program.gpus_max.iter();
    let caps: Vec<Value> = caps
        .map(|((region, kind), gpus)| json!({ "region": region, "kind": kind, "gpus": gpus }))
        .collect();
    json!({ "cells": cells, "rows": rows, "caps": caps })
}

#[test]
fn integer_programs_cost_what_highs_says() {
    let mut noise = Noise(5);
    let programs: Vec<Program> = (0..40).map(|_| program(&mut noise)).collect();
    let requests: Vec<Value> = programs.iter().map(to_json).collect();
    let Some(answer) = ask(&json!({ "what": "programs", "programs": requests })) else {
        return;
    };
    let (mut solved, mut differences) = (0, Vec::new());
    for (at, (program, theirs)) in programs
        .iter()
        .zip(answer.as_array().expect("an array"))
        .enumerate()
    {
        let ours = program.solve_integer().map(|solution| solution.objective);
        match (ours, theirs.as_f64()) {
            (Some(ours), Some(theirs)) if (ours - theirs).abs() <= 1e-4 * theirs.abs().max(1.0) => {
                solved += 1
            }
            (None, None) => {}
            (ours, theirs) => differences.push((at, ours, theirs)),
        }
    }
    println!("{solved} of {} programs have a solution", programs.len());
    assert!(solved >= 20, "too few programs with a solution: {solved}");
    assert!(differences.is_empty(), "seed 5: {differences:?}");
}
