//! The crates that the programs of a release consist of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

use crate::platform::Platform;

/// Packages that a release delivers.
const DELIVERED: [&str; 4] = [
    "isotherm-ext-proc",
    "isotherm-engine",
    "isotherm-demo",
    "isotherm-wasm-filter",
];

/// The target of the filter.
const FILTER_TARGET: &str = "wasm32-wasip1";

/// Reads the crates of the programs on these platforms, and of the filter: those of build scripts too, none of tests.
pub(crate) fn read(root: &Path, programs: &[(Platform, PathBuf)]) -> anyhow::Result<Vec<Package>> {
    let targets = programs
        .iter()
        .map(|(platform, _)| format!("{}-unknown-linux-musl", platform.machine()));
    let mut found = BTreeMap::new();
    for target in targets.chain([FILTER_TARGET.to_owned()]) {
        let mut command = MetadataCommand::new();
        command.current_dir(root);
        command.other_options(["--locked", "--filter-platform", &target].map(str::to_owned));
        let graph = command.exec().context("cargo does not list the crates")?;
        let reached = reached(&graph)?;
        let packages = graph.packages.into_iter();
        let packages = packages.filter(|package| reached.contains(&package.id));
        found.extend(packages.map(|package| {
            let key = (package.name.to_string(), package.version.clone());
            (key, package)
        }));
    }
    Ok(found.into_values().collect())
}

/// The packages that the delivered ones need.
fn reached(graph: &Metadata) -> anyhow::Result<BTreeSet<PackageId>> {
    let resolve = graph.resolve.as_ref().context("cargo resolves nothing")?;
    let nodes: BTreeMap<&PackageId, _> =
        resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let delivered = graph.packages.iter();
    let delivered = delivered.filter(|package| DELIVERED.contains(&package.name.as_str()));
    let mut open: Vec<&PackageId> = delivered.map(|package| &package.id).collect();
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !reached.insert(id.clone()) {
            continue;
        }
        let node = nodes.get(id).context("cargo resolves a part only")?;
        let needed = node.deps.iter().filter(|dependency| {
            let mut kinds = dependency.dep_kinds.iter();
            kinds.any(|kind| kind.kind != DependencyKind::Development)
        });
        open.extend(needed.map(|dependency| &dependency.pkg));
    }
    Ok(reached)
}
