//! The table of the lines, and the rows of `data.csv`.

use std::collections::BTreeMap;

use isotherm_report::Table;

use super::PartEffect;
use super::effect::{CellEffect, Effect, Ratios};
use super::parts::{PolicyPart, Variant};
use crate::row::Row;

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
pub(super) fn extreme(
    finding: &PartEffect,
    by: fn(Ratios) -> f64,
) -> Option<(Variant, CellEffect<'_>)> {
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
