//! The questions of `isotherm init` on a terminal.

use std::io::{IsTerminal as _, stderr, stdin};

use anyhow::Context as _;
use dialoguer::Input;

use crate::cli::address::parse_replica;
use crate::config::Address;

/// Whether a person can answer.
pub(super) fn is_possible() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks for the replicas.
pub(super) fn replicas() -> anyhow::Result<Vec<Address>> {
    let answer = Input::<String>::new()
        .with_prompt("Replicas, as host:port, separated by commas")
        .default("127.0.0.1:8000".to_owned())
        .validate_with(|text: &String| parse(text).map(drop))
        .interact()
        .context("cannot read the answer")?;
    parse(&answer).map_err(anyhow::Error::msg)
}

/// Asks for the name of the model; the default is the one that the replicas tell, with its aliases.
pub(super) fn model(found: Vec<String>) -> anyhow::Result<Vec<String>> {
    let mut question = Input::<String>::new().with_prompt("Model, as clients name it");
    if let Some(first) = found.first() {
        question = question.default(first.clone());
    }
    let answer = question.interact().context("cannot read the answer")?;
    Ok(match found.first() {
        Some(first) if *first == answer => found,
        _ => vec![answer],
    })
}

/// Parses a list of addresses, between commas or spaces.
fn parse(text: &str) -> Result<Vec<Address>, String> {
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    let replicas: Vec<Address> = parts.map(parse_replica).collect::<Result<_, _>>()?;
    match replicas.is_empty() {
        true => Err("one replica is needed, such as 127.0.0.1:8000".to_owned()),
        false => Ok(replicas),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_commas_or_spaces() {
        let replicas = parse("10.0.0.1:8000, http://10.0.0.2:8000 localhost:1").unwrap();
        let texts: Vec<String> = replicas.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.1:8000", "10.0.0.2:8000", "localhost:1"]);
    }

    #[test]
    fn a_mistake_says_what_to_give() {
        assert!(parse(" ,").unwrap_err().contains("such as 127.0.0.1:8000"));
        assert!(parse("a:1,10.0.0.1").unwrap_err().contains("host:port"));
    }
}
