//! Every workload with a fleet, and every generator, by name.

use super::adverse::{POOLS, adverse, pool};
use super::generator::{Generator, OpenKind, conversation};
use super::standard::{Standard, standard};
use super::tools;
use super::yardstick::yardstick;

/// Every workload with its fleet: the standard ones, the adverse ones, those of 2026, and the pools.
pub fn all() -> Vec<Standard> {
    let harder = adverse().into_iter().chain(yardstick());
    let all = standard().into_iter().chain(harder);
    all.chain(POOLS.map(pool)).collect()
}

/// Requests a second of the conversation trace as it was recorded.
const CONVERSATION_PER_S: f64 = 3.0;

/// Generator of the workload of a kind or of a standard name with its documented figures, `scale` times as long.
pub fn by_name(name: &str, scale: f64) -> Option<Generator> {
    let generator = match name {
        "conversation" => conversation(CONVERSATION_PER_S),
        "tools" => Generator::Open(OpenKind::Tools, tools::USUAL),
        _ => {
            let mut all = all().into_iter();
            all.find(|standard| standard.name == name)?.generator
        }
    };
    Some(generator.scaled(scale))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_workload_has_a_name_of_its_own_is_short_and_fits_its_fleet() {
        let names: BTreeSet<&str> = all().iter().map(|standard| standard.name).collect();
        assert_eq!(names.len(), all().len());
        // Larger pools take longer than all others together.
        let is_small = |standard: &Standard| standard.regions[0].replicas.len() <= 40;
        for standard in all().into_iter().filter(is_small) {
            let workload = standard.workload(1);
            let (name, requests) = (standard.name, workload.requests());
            assert_eq!(workload.name, name);
            assert!(standard.generator.regions() <= standard.regions.len());
            let is_open = workload.sends_until.is_none();
            assert!(
                requests >= 1_000 && (requests <= 4_500 || !is_open),
                "{name}: {requests}"
            );
            let steps = workload.sessions.iter().flat_map(|session| &session.steps);
            let longest = steps.map(|step| step.prompt.tokens() + step.output_tokens);
            let most = standard.fleet().request_tokens_max();
            assert!(longest.max() <= Some(most), "{name}");
        }
    }
}
