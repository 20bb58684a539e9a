//! `docs`: the site of `docs/` and the documentation of every module.

use std::process::Command;

use anyhow::ensure;

use crate::cargo::{cargo, made, root};
use crate::process::{run, say};
use crate::tools::MDBOOK;

/// Warnings are errors, except links to private items: these are documented too.
pub(crate) const DOC_FLAGS: &str = "-D warnings -A rustdoc::private-intra-doc-links";

/// Builds `target/site` with mdBook and `target/doc` with rustdoc, private items included: the documentation of the
/// modules explains the design.
///
/// # Errors
/// When a tool cannot be installed, or warns.
pub(crate) fn build() -> anyhow::Result<()> {
    let root = root();
    let mdbook = MDBOOK.obtain(&root)?;
    let site = made(&root).join("site");
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
    say(&format!("{}", site.join("index.html").display()));
    let mut doc = cargo(&root);
    doc.args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    run(doc
        .arg("--document-private-items")
        .env("RUSTDOCFLAGS", DOC_FLAGS))
}
