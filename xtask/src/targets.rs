//! Targets of the workspace, as Cargo describes them.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use crate::cargo::cargo;
use crate::process::output;

/// Names of all tests of the packages that `cargo test` selects.
pub(crate) fn tests(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let metadata = metadata(root)?;
    let selected = strings(member(&metadata, "workspace_default_members"));
    let packages = packages(&metadata).filter(|package| {
        let id = member(package, "id").as_str();
        id.is_some_and(|id| selected.contains(id))
    });
    Ok(packages
        .flat_map(|package| names(package, "test"))
        .collect())
}

/// Names of all programs that rustdoc documents: those without a library of the same name, whose pages they would overwrite.
pub(crate) fn documented_programs(root: &Path) -> anyhow::Result<BTreeSet<String>> {
    let metadata = metadata(root)?;
    let mut programs = BTreeSet::new();
    for package in packages(&metadata) {
        let libraries = names(package, "lib");
        let is_alone = |name: &String| !libraries.contains(&name.replace('-', "_"));
        programs.extend(names(package, "bin").into_iter().filter(is_alone));
    }
    Ok(programs)
}

fn metadata(root: &Path) -> anyhow::Result<Value> {
    let mut command = cargo(root);
    command.args(["metadata", "--no-deps", "--locked", "--format-version", "1"]);
    serde_json::from_str(&output(&mut command)?).context("cargo metadata prints no JSON")
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    member(metadata, "packages")
        .as_array()
        .into_iter()
        .flatten()
}

/// Names of the targets of a kind.
fn names(package: &Value, kind: &str) -> BTreeSet<String> {
    let targets = member(package, "targets").as_array().into_iter().flatten();
    let targets = targets.filter(|target| strings(member(target, "kind")).contains(kind));
    let names = targets.filter_map(|target| member(target, "name").as_str());
    names.map(str::to_owned).collect()
}

fn member<'a>(object: &'a Value, name: &str) -> &'a Value {
    object.get(name).unwrap_or(&Value::Null)
}

fn strings(array: &Value) -> BTreeSet<&str> {
    let array = array.as_array().into_iter().flatten();
    array.filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::root;

    #[test]
    fn tests_and_programs_of_the_workspace_are_found() {
        let tests = tests(&root()).unwrap();
        assert!(tests.contains("e2e") && tests.contains("router"));
        assert!(!tests.contains("isotherm_router"), "a library is no test");
        let programs = documented_programs(&root()).unwrap();
        assert!(programs.contains("isotherm"));
        assert!(!programs.contains("isotherm-demo"), "it has a library");
    }
}
