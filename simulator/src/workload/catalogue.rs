//! Every workload with a fleet, and every generator, by name.

use super::adverse::{POOLS, adverse, pool};
use super::generator::{Generator, conversation};
use super::standard::{Standard, standard};
use super::tools::Tools;
use super::yardstick::yardstick;

/// Every workload with its fleet: the standard ones, the adverse ones, those of 2026, and the pools.
#[must_use]
pub fn all() -> Vec<Standard> {
    let harder = adverse().into_iter().chain(yardstick());
    let all = standard().into_iter().chain(harder);
    all.chain(POOLS.map(pool)).collect()
}

/// Requests a second of the conversation trace as it was recorded.
const CONVERSATION_PER_S: f64 = 3.0;

/// Generator of the workload of a kind or of a standard name with its documented figures, `scale` times as long.
#[must_use]
pub fn by_name(name: &str, scale: f64) -> Option<Generator> {
    let generator = match name {
        "conversation" => conversation(CONVERSATION_PER_S),
        "tools" => Generator::Tools(Tools::default()),
        _ => {
            let mut all = all().into_iter();
            all.find(|standard| standard.name == name)?.generator
        }
    };
    Some(generator.scaled(scale))
}
