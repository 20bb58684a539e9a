//! Tools from crates.io and PyPI, each in one pinned version, installed below `target/tools` when missing.
//!
//! A copy that the machine has elsewhere is not used: its version would decide the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

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

/// Pinned packages from PyPI, in a virtual environment of their own.
pub(crate) struct PythonTools {
    /// Name of the environment.
    name: &'static str,
    packages: &'static [&'static str],
}

/// A C compiler for every target with its C library, and what makes Cargo use it.
pub(crate) const ZIG: PythonTools = PythonTools {
    name: "zig",
    packages: &["cargo-zigbuild==0.24.1", "ziglang==0.17.1"],
};

/// Packs wheels.
pub(crate) const WHEEL: PythonTools = PythonTools {
    name: "wheel",
    packages: &["wheel==0.48.0"],
};

impl PythonTools {
    /// The folder of the environment's programs, made if it is missing or holds other versions.
    pub(crate) fn obtain(&self, root: &Path) -> anyhow::Result<PathBuf> {
        let folder = output_directory(root).join("tools").join(self.name);
        let stamp = folder.join("packages.txt");
        let packages = self.packages.join("\n");
        let programs = folder.join("bin");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == packages) {
            return Ok(programs);
        }
        announce(&format!("installing {}", self.packages.join(", ")));
        let mut venv = Command::new("python3");
        run(venv.args(["-m", "venv", "--clear"]).arg(&folder))
            .context("no virtual environment; install Python 3 with its module `venv`")?;
        let mut pip = Command::new(programs.join("python3"));
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.args(["--disable-pip-version-check"]);
        run(pip.args(self.packages))?;
        fs::write(&stamp, packages).with_context(|| format!("cannot write {}", stamp.display()))?;
        Ok(programs)
    }
}
