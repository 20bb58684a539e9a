//! `docs`: the site of `docs/` and the documentation of every module.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;

use crate::cargo::{cargo, output_directory, root};
use crate::process::{announce, run};
use crate::targets;
use crate::tools::MDBOOK;

/// Warnings are errors, except links to private items: these are documented too.
const FLAGS: &str = "-D warnings -A rustdoc::private-intra-doc-links";

/// Builds `target/site` with mdBook and `target/doc` with rustdoc, private items included: the documentation of the
/// modules explains the design.
pub(crate) fn build() -> anyhow::Result<()> {
    let root = root();
    let mdbook = MDBOOK.obtain(&root)?;
    let site = output_directory(&root).join("site");
    let output = Command::new(mdbook)
        .args(["build", "docs", "--dest-dir"])
        .arg(&site)
        .current_dir(&root)
        .output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && !messages.contains("WARN") && !messages.contains("ERROR"),
        "mdbook build docs: {messages}"
    );
    announce(&format!("{}", site.join("index.html").display()));
    rustdoc(&root)
}

/// Builds the documentation of every module.
///
/// The selection is the usual one and examples, of which there are none. With examples, Cargo selects the features that
/// dependencies have in clippy's run, and does not check them again.
pub(crate) fn rustdoc(root: &Path) -> anyhow::Result<()> {
    let mut doc = cargo(root);
    doc.args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    doc.args(["--lib", "--examples"]);
    for program in targets::documented_programs(root)? {
        doc.args(["--bin", &program]);
    }
    doc.arg("--document-private-items");
    run(doc.env("RUSTDOCFLAGS", FLAGS))
}
