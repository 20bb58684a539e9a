//! `isotherm check --mesh`: known hazards of mesh manifests and of Envoy's configuration dumps.
//!
//! A gateway accepts each of these mistakes without a message, and a request then hangs, fails or goes astray. Every rule
//! is a row of a table, one table for each gateway; `docs/mesh` describes them. Rules that miss something look at all
//! files together, so give every file of an installation at once. Rejected: an admission webhook, which a cluster must
//! trust with every manifest.

mod ai_gateway;
mod envoy;
mod envoy_gateway;
mod filter;
mod inference_pool;
mod istio;
mod manifests;
mod rule;
#[cfg(test)]
mod tests;
mod walk;

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use isotherm_envoy_config::check::Severity;

use self::manifests::Manifests;
use self::rule::Rule;
use super::envoy::findings_in_texts as findings_in;
use super::output;

/// The rules of every gateway.
const TABLES: [&[Rule]; 5] = [
    envoy::RULES,
    envoy_gateway::RULES,
    ai_gateway::RULES,
    istio::RULES,
    inference_pool::RULES,
];

/// Reports every known hazard of these files.
pub(super) fn run(files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let manifests = Manifests::read(files)?;
    let violations = violations(&manifests);
    let findings = findings_in(&manifests.texts)?;
    if violations.is_empty() && findings.is_empty() {
        let count = manifests.documents.len();
        output::print(&format!("no known hazards in {count} documents\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    for finding in &findings {
        output::note(&finding.to_string());
    }
    if !violations.is_empty() {
        eprint!("{}", report(&violations));
    }
    let has_error = findings
        .iter()
        .any(|finding| finding.severity == Severity::Error);
    let is_mistaken = has_error || !violations.is_empty();
    Ok(if is_mistaken {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// A hazard in a document.
#[derive(Debug)]
struct Violation {
    rule: &'static str,
    place: String,
    hazard: String,
    remedy: &'static str,
}

/// Applies every rule.
fn violations(manifests: &Manifests) -> Vec<Violation> {
    let rules = TABLES.into_iter().flatten();
    let found = rules.flat_map(|rule| {
        let occurrences = (rule.find)(manifests).into_iter();
        occurrences.map(|occurrence| Violation {
            rule: rule.name,
            place: occurrence.document.place(),
            hazard: format!("{}{}", rule.hazard, occurrence.detail),
            remedy: rule.remedy,
        })
    });
    found.collect()
}

fn report(violations: &[Violation]) -> String {
    let mut text = String::new();
    for violation in violations {
        let Violation { place, rule, .. } = violation;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{place}: {rule}\n  {}", violation.hazard);
        let _ = writeln!(text, "  -> {}", violation.remedy);
    }
    let _ = writeln!(text, "{} known hazards", violations.len());
    text
}
