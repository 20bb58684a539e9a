//! Conclusions: what chance does, which constants change nothing, and which carry less than the bound in every cell.

use isotherm_report::Conclusion;
use isotherm_report::number::percent;

use super::PartEffect;
use super::effect::{EFFECT_MIN, Effect, Ratios};
use super::runs::Sample;
use super::tables::extreme;

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
