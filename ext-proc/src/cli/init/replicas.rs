//! The replicas of a new configuration, and the model that they tell.

use std::net::SocketAddr;

use anyhow::{bail, ensure};

use crate::cli::models::ModelsAnswer;
use crate::cli::output;
use crate::config::Address;

/// The most replicas that a command asks and writes. A longer list belongs into a DNS name.
const REPLICAS_MAX: usize = 1_000;

/// Checks that a pool can have these replicas. `localhost` becomes the loopback address of IPv4, where engines listen.
pub(in crate::cli) fn check(mut replicas: Vec<Address>) -> anyhow::Result<Vec<Address>> {
    ensure!(
        replicas.len() <= REPLICAS_MAX,
        "more than {REPLICAS_MAX} replicas: give one DNS name that has their addresses"
    );
    for replica in &mut replicas {
        if let Address::Name(name, port) = replica
            && name == "localhost"
        {
            *replica = SocketAddr::from(([127, 0, 0, 1], *port)).into();
        }
    }
    let names = replicas.iter();
    let names: Vec<&Address> = names
        .filter(|replica| matches!(replica, Address::Name(..)))
        .collect();
    ensure!(
        names.len() <= 1,
        "a pool has one DNS name at most, for all of its replicas: give IP addresses instead of {}",
        names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(replicas)
}

/// Warns of replicas that do not answer, or that serve another model than `model`.
pub(in crate::cli) fn warn(model: Option<&str>, replicas: &[Address], answers: &[ModelsAnswer]) {
    for (replica, answer) in replicas.iter().zip(answers) {
        let names = answer.names();
        let problem = match (answer, model) {
            (ModelsAnswer::Silent(reason), _) => {
                format!("does not answer ({reason}): it gets requests once it does")
            }
            (ModelsAnswer::Other(reason), _) => {
                format!("does not list its models ({reason})")
            }
            (ModelsAnswer::Models(all), Some(model))
                if model != "*" && !all.iter().any(|own| own.id == model) =>
            {
                format!("serves {}, not {model}", names.join(", "))
            }
            _ => continue,
        };
        output::note(&format!("warning: {replica} {problem}"));
    }
}

/// The names of the model that the replicas serve; empty when none of them names one. Fails when they serve different models.
pub(in crate::cli) fn common_models(
    replicas: &[Address],
    answers: &[ModelsAnswer],
) -> anyhow::Result<Vec<String>> {
    let mut found: Vec<&str> = Vec::new();
    for (replica, answer) in replicas.iter().zip(answers) {
        let names = answer.names();
        match (found.first(), names.is_empty()) {
            (_, true) => {}
            (None, false) => found = names,
            (Some(first), false) if names.contains(first) => {}
            (Some(first), false) => bail!(
                "{replica} serves {}, and another replica {first}: name the pool's model by --model, and write a pool for each \
                 further model into isotherm.yaml",
                names.join(", ")
            ),
        }
    }
    Ok(found.into_iter().map(str::to_owned).collect())
}
