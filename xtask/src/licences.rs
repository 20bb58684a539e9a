//! Licences and sources of every dependency, against `deny.toml`.
//!
//! `cargo deny` is the tool for this, and its file is what is read here, so that it can be run where it is installed.
//! It is not required: it takes minutes to build, and its list of advisories needs the network, which a check that
//! must run anywhere may not have. What needs no network is checked here: every licence is on the list of those
//! allowed, and every package comes from crates.io.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::cargo::cargo;
use crate::process::{output, run, say};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks every package that `cargo metadata` lists.
///
/// # Errors
/// Every package whose licence or source is not allowed, all at once.
pub(crate) fn check(root: &Path) -> anyhow::Result<()> {
    let rules = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let allowed = allowed_licences(&rules)?;
    let metadata = output(cargo(root).args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let packages = metadata
        .get("packages")
        .and_then(Value::as_array)
        .context("cargo metadata has no packages")?;

    let mut problems = Vec::new();
    for package in packages {
        let text = |member: &str| package.get(member).and_then(Value::as_str);
        let name = format!(
            "{} {}",
            text("name").unwrap_or("?"),
            text("version").unwrap_or("?")
        );
        match text("license") {
            Some(expression) if satisfied(expression, &allowed) => {}
            Some(expression) => problems.push(format!(
                "{name}: licence {expression} is not allowed by deny.toml"
            )),
            None => problems.push(format!("{name}: no licence given")),
        }
        match text("source") {
            None | Some(CRATES_IO) => {}
            Some(other) => problems.push(format!("{name}: comes from {other}, not from crates.io")),
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    say(&format!(
        "{} packages: licences and sources are allowed",
        packages.len()
    ));
    advisories(root)
}

/// With `cargo deny` and its list on this machine, known vulnerabilities too.
fn advisories(root: &Path) -> anyhow::Result<()> {
    let cargo_home = std::env::var_os("CARGO_HOME").map_or_else(
        || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")),
        |home| Some(home.into()),
    );
    let listed = cargo_home.is_some_and(|home| {
        let list = home.join("advisory-dbs");
        fs::read_dir(list).is_ok_and(|mut entries| entries.next().is_some())
    });
    if !listed || output(Command::new("cargo-deny").arg("--version")).is_err() {
        say(
            "advisories not checked: needs `cargo deny` and its list (`cargo install cargo-deny`, `cargo deny fetch`)",
        );
        return Ok(());
    }
    run(cargo(root).args([
        "deny",
        "--offline",
        "--log-level",
        "error",
        "check",
        "advisories",
    ]))
}

/// The strings of `allow = [...]` in `[licenses]`.
fn allowed_licences(rules: &str) -> anyhow::Result<BTreeSet<String>> {
    let (_, section) = rules
        .split_once("[licenses]")
        .context("deny.toml has no [licenses]")?;
    let (_, list) = section
        .split_once("allow = [")
        .context("deny.toml has no `allow` in [licenses]")?;
    let (list, _) = list
        .split_once(']')
        .context("`allow` in deny.toml does not end")?;
    let without_comments = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    Ok(without_comments
        .flat_map(|line| line.split(','))
        .map(|item| item.trim().trim_matches('"').to_owned())
        .filter(|item| !item.is_empty())
        .collect())
}

/// Whether an SPDX expression can be met with these licences. `/` is what old packages wrote for `OR`.
fn satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Expression {
        tokens: &tokens,
        allowed,
    };
    parser.any() && parser.tokens.is_empty()
}

/// Recursive descent over what is left of an expression; `OR` binds weaker than `AND`.
struct Expression<'a> {
    tokens: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl Expression<'_> {
    fn any(&mut self) -> bool {
        let mut met = self.all();
        while self.take("OR") {
            met |= self.all();
        }
        met
    }

    fn all(&mut self) -> bool {
        let mut met = self.one();
        while self.take("AND") {
            met &= self.one();
        }
        met
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let met = self.any();
            return self.take(")") && met;
        }
        let Some((name, rest)) = self.tokens.split_first() else {
            return false;
        };
        self.tokens = rest;
        if self.take("WITH") {
            // An exception only ever gives more rights.
            let Some((_, rest)) = self.tokens.split_first() else {
                return false;
            };
            self.tokens = rest;
        }
        self.allowed.contains(*name)
    }

    fn take(&mut self, token: &str) -> bool {
        match self.tokens.split_first() {
            Some((first, rest)) if *first == token => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BTreeSet, allowed_licences, satisfied};

    fn meets(expression: &str) -> bool {
        let allowed: BTreeSet<String> = ["MIT", "Apache-2.0", "Unicode-3.0"]
            .map(String::from)
            .into();
        satisfied(expression, &allowed)
    }

    #[test]
    fn one_of_several_licences_is_enough() {
        assert!(meets("MIT"));
        assert!(meets("GPL-3.0 OR MIT"));
        assert!(meets("MIT/GPL-3.0"));
        assert!(meets("Apache-2.0 WITH LLVM-exception OR GPL-2.0"));
    }

    #[test]
    fn every_licence_that_is_demanded_must_be_allowed() {
        assert!(meets("(MIT OR GPL-3.0) AND Unicode-3.0"));
        assert!(!meets("(MIT OR GPL-3.0) AND BSL-1.0"));
        assert!(!meets("GPL-3.0"));
    }

    #[test]
    fn an_expression_that_makes_no_sense_is_refused() {
        assert!(!meets(""));
        assert!(!meets("(MIT"));
        assert!(!meets("MIT MIT"));
    }

    #[test]
    fn the_list_is_read_without_its_comments() {
        let rules = "[licenses]\nallow = [\n  \"MIT\", # \"not this\"\n  \"ISC\",\n]\n";
        let allowed = allowed_licences(rules).unwrap();
        assert_eq!(allowed, ["ISC", "MIT"].map(String::from).into());
    }
}
