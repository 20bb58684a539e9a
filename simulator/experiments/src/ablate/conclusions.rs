//! Conclusions: what chance does, which constants change nothing, and which carry less than the bound in every cell.

use isotherm_report::Conclusion;
use isotherm_report::number::percent;

use super::Finding;
use super::effect::{EFFECT_MIN, Effect, Ratios};
use super::runs::Sample;
use super::tables::extreme;

pub(super) fn conclusions(findings: &[Finding], samples: &[Sample]) -> Vec<Conclusion> {
    let _ = samples;
    let (chance, changes): (Vec<&Finding>, Vec<&Finding>) =
        findings.iter().partition(|one| one.line.is_chance());
    let mut conclusions: Vec<Conclusion> = chance.into_iter().map(of_chance).collect();
    let (inert, others): (Vec<&Finding>, Vec<&Finding>) =
        changes.into_iter().partition(|one| one.is_inert());
    let (fail, others): (Vec<&Finding>, Vec<&Finding>) = others.into_iter().partition(|one| {
        let mut effects = one.effects.iter().flatten();
        effects.any(|effect| *effect == Effect::Failure)
    });
    let small: Vec<&Finding> = others
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

/// The ratio by which the worst cell of a line is worse.
fn harm(finding: &Finding) -> f64 {
    let worst = extreme(finding, Ratios::cell_harm);
    worst.map_or(1.0, |(_, cell)| cell.ratios.cell_harm())
}

fn of_chance(finding: &Finding) -> Conclusion {
    Conclusion::note(format!(
        "Another seed of the run, with the same requests, harms the worst cell by {}, and the mean of a figure by {} at most. \
         Effects below that are chance.",
        percent(harm(finding) - 1.0),
        percent((finding.carries() - 1.0).max(0.0)),
    ))
}

fn list(what: &str, findings: &[&Finding]) -> Conclusion {
    let mut names: Vec<&str> = findings.iter().map(|one| one.line.name.as_str()).collect();
    names.sort_unstable();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    Conclusion::note(format!("{what} ({} lines): {names}.", findings.len()))
}
