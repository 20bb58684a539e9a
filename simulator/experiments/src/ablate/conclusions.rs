//! The report: what chance does, which constants change nothing, which carry less than the bound in every cell, the table of the
//! lines, and the rows of `data.csv`.

use std::collections::BTreeMap;

use isotherm_report::number::percent;
use isotherm_report::{Conclusion, Table};

use super::PartEffect;
use super::effect::{CellEffect, EFFECT_MIN, Effect, Ratios};
use super::parts::{PolicyPart, Variant};
use super::runs::Sample;
use crate::figures::Row;

/// Workload in which no request should wait.
const LIGHT: &str = "light";
/// The largest share of its requests that may wait in the router.
const WAITS_MAX: f64 = 0.002;

pub(super) fn conclusions(findings: &[PartEffect], samples: &[Sample]) -> Vec<Conclusion> {
    let (chance, changes): (Vec<&PartEffect>, Vec<&PartEffect>) =
        findings.iter().partition(|one| one.part.is_chance());
    let mut conclusions: Vec<Conclusion> = waits(samples).into_iter().collect();
    conclusions.extend(chance.into_iter().map(of_chance));
    let (inert, others): (Vec<&PartEffect>, Vec<&PartEffect>) =
        changes.into_iter().partition(|one| one.is_inert());
    let (fail, others): (Vec<&PartEffect>, Vec<&PartEffect>) =
        others.into_iter().partition(|one| {
            let mut effects = one.effects.iter().flatten();
            effects.any(|effect| *effect == Effect::Failure)
        });
    let small: Vec<&PartEffect> = others
        .into_iter()
        .filter(|one| harm(one) < EFFECT_MIN)
        .collect();
    let less = percent(EFFECT_MIN - 1.0);
    conclusions.extend([
        list("No variant changes anything in any cell", &inert),
        list(
            &format!("Every variant harms every cell by less than {less}"),
            &small,
        ),
        list("A variant fails", &fail),
    ]);
    conclusions
}

/// The share of the requests that wait in the router where hardly any should.
fn waits(samples: &[Sample]) -> Option<Conclusion> {
    let light = samples.iter().filter(|sample| sample.cell == LIGHT);
    let shares: Vec<f64> = light.map(|sample| sample.baseline.queued_share).collect();
    let most = shares.iter().copied().reduce(f64::max)?;
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    let text = format!(
        "In `{LIGHT}` at most {} of the requests wait in the router",
        percent(WAITS_MAX)
    );
    let measured = format!(
        "{} on average, {} at most",
        hundredth(mean),
        hundredth(most)
    );
    Some(Conclusion::claim(text, most <= WAITS_MAX).measured(measured))
}

/// A share as a percentage with two decimal places.
fn hundredth(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// The ratio by which the worst cell of a line is worse.
fn harm(finding: &PartEffect) -> f64 {
    let worst = extreme(finding, Ratios::cell_harm);
    worst.map_or(1.0, |(_, cell)| cell.ratios.cell_harm())
}

fn of_chance(finding: &PartEffect) -> Conclusion {
    Conclusion::note(format!(
        "Another seed of the run, with the same requests, harms the worst cell by {}, and the mean of a figure by {} at most. \
         Effects below that are chance.",
        percent(harm(finding) - 1.0),
        percent((finding.carries() - 1.0).max(0.0)),
    ))
}

fn list(what: &str, findings: &[&PartEffect]) -> Conclusion {
    let mut names: Vec<&str> = findings.iter().map(|one| one.part.name.as_str()).collect();
    names.sort_unstable();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Conclusion::note(format!("{what} ({} lines): {names}.", findings.len()))
}

/// A line for each constant and rule, the one that carries most first. The headline has the first ones.
pub(super) fn lines(findings: &[PartEffect]) -> Table {
    let variants = Variant::ALL.map(Variant::name);
    let columns = ["constant or rule"].into_iter().chain(variants);
    let last = ["worst cell", "best cell"];
    let table = Table::new(columns.chain(last)).with_rows(findings.iter().map(|one| {
        let effects = one.effects.iter().map(|effect| shown(effect.as_ref()));
        let [worst, best] = extremes(one);
        let line = [one.part.name.clone()].into_iter().chain(effects);
        line.chain([worst, best]).collect::<Vec<_>>()
    }));
    let shown = ["constant or rule", Variant::ALL[0].name(), last[0]];
    table.headline(&shown, |_| true)
}

fn shown(effect: Option<&Effect>) -> String {
    match effect {
        None => "-".to_owned(),
        Some(effect) if effect.is_none() => "nothing".to_owned(),
        Some(effect) => effect.mean().map_or("fails".to_owned(), |mean| {
            format!("{:.3} / {:.3} / {:.3}", mean.goodput, mean.ttft, mean.end)
        }),
    }
}

/// The worst and the best cell of a line over its variants.
fn extremes(finding: &PartEffect) -> [String; 2] {
    [Ratios::cell_harm as fn(Ratios) -> f64, Ratios::cell_gain].map(|by| {
        let Some((variant, cell)) = extreme(finding, by) else {
            return "-".to_owned();
        };
        let name = variant.name();
        let Ratios { goodput, ttft, .. } = cell.ratios;
        let (figure, ratio) = if by(Ratios {
            ttft: 1.0,
            ..cell.ratios
        }) < by(cell.ratios)
        {
            ("TTFT p90", ttft)
        } else {
            ("goodput", goodput)
        };
        format!("{}: {figure} {ratio:.2}, {name}", cell.cell)
    })
}

/// The variant and the cell of the largest ratio beyond 1.
fn extreme(finding: &PartEffect, by: fn(Ratios) -> f64) -> Option<(Variant, CellEffect<'_>)> {
    let effects = Variant::ALL.into_iter().zip(&finding.effects);
    let cells = effects.flat_map(|(variant, effect)| {
        let cells = effect.iter().flat_map(Effect::cells);
        cells.map(move |cell| (variant, cell))
    });
    let beyond = cells.filter(|(_, cell)| by(cell.ratios) > 1.0);
    beyond.max_by(|(_, a), (_, b)| by(a.ratios).total_cmp(&by(b.ratios)))
}

/// A row for each run of a variant: its ratios to the unchanged run.
pub(super) fn rows(line: &PolicyPart, variant: Variant, effect: &Effect) -> Vec<Row> {
    let Effect::Of(all) = effect else {
        return Vec::new();
    };
    let row = |((cell, seed), ratios): &((String, u64), Ratios)| Row {
        group: cell.clone(),
        system: format!("{}, {}", line.name, variant.name()),
        x: 0.0,
        seed: *seed,
        summary: None,
        more: BTreeMap::from([
            ("goodput_1s_ratio", ratios.goodput),
            ("ttft_p90_ratio", ratios.ttft),
            ("e2e_p90_ratio", ratios.end),
        ]),
    };
    all.iter().map(row).collect()
}
