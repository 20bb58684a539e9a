//! Dependencies: each comes from crates.io in a stated version, under a licence that the project accepts.
//!
//! `spdx` reads licence expressions and `cargo_metadata` the graph of packages. cargo-deny makes the same checks, but its build takes
//! minutes on every new machine. Advisories need a database from the network: `cargo audit` reads it.
#![expect(
    clippy::expect_used,
    reason = "dependencies that cannot be read fail the test"
)]

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, Package};
use isotherm_conventions::{report, root};
use spdx::{Expression, ParseMode};

/// Platforms that the project is built for.
const TARGETS: [&str; 3] = [
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "wasm32-wasip1",
];

/// Licences, as SPDX expressions.
const ACCEPTED: [&str; 11] = [
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];

/// Packages with a licence that no other package may have.
///
/// `webpki-root-certs`: Mozilla's root certificates. They are data, which `cargo xtask release` puts into the images.
const EXCEPTIONS: [(&str, &str); 1] = [("webpki-root-certs", "CDLA-Permissive-2.0")];

/// The packages of the graph on each platform, with all features.
fn graphs() -> Vec<Metadata> {
    let graph = |target: &str| {
        let mut command = MetadataCommand::new();
        command.current_dir(root());
        command.features(CargoOpt::AllFeatures);
        let options = ["--locked", "--filter-platform", target];
        command.other_options(options.map(str::to_owned));
        command.exec().expect("cargo reads the dependencies")
    };
    TARGETS.map(graph).into()
}

/// The packages that are built on some platform, once each.
fn packages(graphs: &[Metadata]) -> Vec<&Package> {
    let resolved = graphs.iter().flat_map(|graph| {
        let nodes = graph.resolve.iter().flat_map(|resolve| &resolve.nodes);
        nodes.map(|node| &graph[&node.id])
    });
    let mut packages: Vec<&Package> = resolved.collect();
    packages.sort_by(|one, other| one.id.cmp(&other.id));
    packages.dedup_by(|one, other| one.id == other.id);
    packages
}

/// Whether a package may be used under its licence.
fn is_accepted(name: &str, licence: &str) -> bool {
    let exception = EXCEPTIONS.iter().find(|(package, _)| *package == name);
    let accepted = ACCEPTED.iter().chain(exception.map(|(_, licence)| licence));
    let accepted: Vec<Expression> = accepted
        .map(|accepted| Expression::parse(accepted).expect("a constant is an expression"))
        .collect();
    // Manifests of earlier times separate alternatives by a slash.
    let expression = Expression::parse_mode(licence, ParseMode::LAX);
    expression.is_ok_and(|expression| {
        expression.evaluate(|needed| {
            let mut all = accepted.iter().flat_map(Expression::requirements);
            all.any(|accepted| accepted.req == *needed)
        })
    })
}

#[test]
fn a_dependency_has_an_accepted_licence() {
    let graphs = graphs();
    let violations: Vec<String> = packages(&graphs)
        .into_iter()
        .filter_map(|package| {
            let licence = package.license.as_deref().unwrap_or("no licence");
            let is_accepted = is_accepted(&package.name, licence);
            (!is_accepted).then(|| format!("{} {}: {licence}", package.name, package.version))
        })
        .collect();
    report("a dependency has an accepted licence", &violations);
}

#[test]
fn a_dependency_comes_from_crates_io_in_a_stated_version() {
    let graphs = graphs();
    let mut violations = Vec::new();
    for package in packages(&graphs) {
        let source = package.source.as_ref();
        if source.is_some_and(|source| !source.is_crates_io()) {
            violations.push(format!("{}: from {source:?}", package.id));
        }
        if source.is_some() {
            continue;
        }
        for dependency in &package.dependencies {
            let is_open = dependency.path.is_none() && dependency.req.to_string() == "*";
            if is_open {
                violations.push(format!("{}: {} = \"*\"", package.name, dependency.name));
            }
        }
    }
    report(
        "a dependency comes from crates.io in a stated version",
        &violations,
    );
}

#[test]
fn a_choice_of_licences_needs_one_that_is_accepted() {
    for (licence, expected) in [
        ("MIT", true),
        ("GPL-3.0-only OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0-only", true),
        ("CDLA-Permissive-2.0", false),
        ("no licence", false),
    ] {
        assert_eq!(is_accepted("any", licence), expected, "{licence}");
    }
    assert!(is_accepted("webpki-root-certs", "CDLA-Permissive-2.0"));
}
