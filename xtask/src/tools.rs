//! Tools from crates.io, each in one pinned version, installed below `target/tools` when missing.
//!
//! A copy that the machine has elsewhere is not used: its version would decide the result.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{cargo, output_directory};
use crate::process::{announce, output, run};

/// A pinned tool.
pub(crate) struct Tool {
    package: &'static str,
    version: &'static str,
}

/// The site of `docs/`.
pub(crate) const MDBOOK: Tool = Tool {
    package: "mdbook",
    version: "0.5.4",
};

impl Tool {
    /// The tool's program, installed if it is missing.
    ///
    /// A debug build is enough: installing takes a minute or two, running takes seconds.
    pub(crate) fn obtain(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let folder = output_directory(root).join("tools");
        let program = folder.join("bin").join(self.package);
        let installed = output(Command::new(&program).arg("--version")).unwrap_or_default();
        if !installed.contains(self.version) {
            announce(&format!("installing {} {}", self.package, self.version));
            let mut install = cargo(root);
            install.args(["install", self.package, "--version", self.version]);
            install.args(["--locked", "--debug", "--quiet", "--force", "--root"]);
            install.env("CARGO_PROFILE_DEV_DEBUG", "false");
            run(install.arg(&folder))?;
        }
        Ok(program)
    }
}
