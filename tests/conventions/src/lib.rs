//! The repository as data: its Rust sources, parsed, and its documents.
//!
//! The tests of this package check the conventions that `CONTRIBUTING.md` describes and that a program can check. Each
//! test reports every violation at once, with its file and line. An exception stands in the test's own list, with a
//! reason.
#![expect(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test helper: a repository that cannot be read fails the test"
)]

mod items;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

pub use items::{Doc, Function, Items, PublicType, docs};
pub use modules::ModuleGraph;

/// The root folder of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Every file below the root with one of these endings, as paths relative to the root, in order.
pub fn files(endings: &[&str]) -> Vec<String> {
    let root = root();
    let skipped = |name: &str| name == "target" || (name.starts_with('.') && name.len() > 1);
    let mut found: Vec<String> = WalkDir::new(&root)
        .into_iter()
        .filter_entry(|entry| {
            entry.depth() == 0 || !entry.file_name().to_str().is_some_and(skipped)
        })
        .map(|entry| entry.expect("the repository can be read"))
        .filter(|entry| entry.file_type().is_file())
        .filter_map(|entry| {
            let path = entry.path().strip_prefix(&root).ok()?.to_str()?.to_owned();
            endings
                .iter()
                .any(|end| path.ends_with(end))
                .then_some(path)
        })
        .collect();
    found.sort();
    found
}

/// The text of a file, by its path relative to the root.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether `prost-build` wrote a file.
pub fn is_generated(text: &str) -> bool {
    text.starts_with("// This file is @generated")
}

/// A parsed Rust source file.
#[derive(Debug)]
pub struct Source {
    /// Path relative to the root.
    pub path: String,
    /// Syntax tree.
    pub tree: syn::File,
}

impl Source {
    /// Parses every Rust file whose path satisfies `is_wanted`, except for generated ones.
    pub fn all(is_wanted: impl Fn(&str) -> bool) -> Vec<Self> {
        files(&[".rs"])
            .into_iter()
            .filter(|path| is_wanted(path))
            .map(|path| (text(&path), path))
            .filter(|(text, _)| !is_generated(text))
            .map(|(text, path)| {
                let tree = syn::parse_file(&text);
                let tree = tree.unwrap_or_else(|error| panic!("{path}: {error}"));
                Self { path, tree }
            })
            .collect()
    }

    /// The package's folder: the part of the path before `src/`, `tests/` or `benches/`.
    pub fn package(&self) -> &str {
        ["/src/", "/tests/", "/benches/", "/fuzz_targets/"]
            .iter()
            .filter_map(|folder| self.path.rfind(folder))
            .max()
            .map_or("", |end| &self.path[..end])
    }
}

/// Whether a path belongs to the shipped product: the filter and the service, without their tests.
pub fn is_shipped(path: &str) -> bool {
    (path.starts_with("wasm-filter/") || path.starts_with("ext-proc/")) && !is_test(path)
}

/// Whether a path holds tests or benches only.
pub fn is_test(path: &str) -> bool {
    let is_file_of_tests = path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    is_file_of_tests || path.contains("/tests/") || path.contains("/benches/")
}

/// Fails with every violation, one a line, if there is any.
pub fn report(rule: &str, violations: &[String]) {
    assert!(
        violations.is_empty(),
        "{rule}: {} violations\n{}",
        violations.len(),
        violations.join("\n")
    );
}
