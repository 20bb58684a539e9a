//! Compilers for targets that are not the machine's own: WebAssembly for the filter, musl for the programs of a release.
//!
//! Machines differ, so there are three ways to a standard library of a target:
//! 1. the pinned toolchain, where the library is installed;
//! 2. the same after `rustup target add`, where rustup can download it;
//! 3. Debian's `rustc-web`, which compiles its own standard library from source.
//!
//! An installed compiler comes before a download, so that a machine without a network does not wait for a failing
//! download at each build.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::process::{announce, command_line, output, run};

/// Debian packages of the third way; a target may need more.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_STD_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";

/// A target, and what Debian's compiler needs for it besides [`DEBIAN_PACKAGES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Target of the pinned toolchain.
    pub(crate) rustup: &'static str,
    /// Further Debian packages.
    pub(crate) debian_packages: &'static [&'static str],
    /// Programs of which Debian's way needs one; empty where it needs none.
    pub(crate) debian_linkers: &'static [&'static str],
}

/// A compiler that is ready to build for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// The toolchain that runs this program, with the standard library of the target.
    Pinned,
    /// Debian's, which compiles its own standard library.
    Debian {
        /// The program of [`Target::debian_linkers`] that is there.
        linker: Option<&'static str>,
    },
}

impl Compiler {
    /// Finds a compiler for the target, or installs one: a rustup target, or packages as root on Debian. Announces each
    /// such step.
    pub(crate) fn find_or_install(root: &Path, target: Target) -> anyhow::Result<Self> {
        let pinned = || Self::pinned(root, target.rustup);
        let debian = || Self::debian(target);
        if let Some(found) = pinned().or_else(debian) {
            return Ok(found);
        }
        let rustup = match found_after(rustup_target_add(root, target.rustup), pinned) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => error,
        };
        let packages = [&DEBIAN_PACKAGES[..], target.debian_packages].concat();
        let apt_get = match found_after(apt_get_install(&packages), debian) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => error,
        };
        bail!(
            "no compiler for {0}. Any one of these helps:\n  \
             1. install the {0} standard library of the Rust that you use;\n  \
             2. with rustup: `rustup target add {0}` (tried: {rustup:#});\n  \
             3. on Debian, as root: `apt-get install {1}` (tried: {apt_get:#})",
            target.rustup,
            packages.join(" "),
        )
    }

    fn pinned(root: &Path, target: &str) -> Option<Self> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", target]);
        let libraries = output(rustc.current_dir(root)).ok()?;
        let mut libraries = fs::read_dir(libraries.trim()).ok()?.flatten();
        libraries
            .any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
            .then_some(Self::Pinned)
    }

    fn debian(target: Target) -> Option<Self> {
        let exists = |path: &&str| Path::new(path).exists();
        let linkers = target.debian_linkers;
        let linker = linkers.iter().copied().find(|path| exists(path));
        if linker.is_none() && !linkers.is_empty() {
            return None;
        }
        if ![DEBIAN_RUSTC, DEBIAN_CARGO, DEBIAN_STD_SOURCE]
            .iter()
            .all(exists)
        {
            return None;
        }
        let mut rustc = Command::new(DEBIAN_RUSTC);
        rustc.arg("--version").env_remove("LD_LIBRARY_PATH");
        let version = parse_version(&output(&mut rustc).ok()?)?;
        (Some(version) >= parse_version(concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"))))
            .then_some(Self::Debian { linker })
    }

    /// The compiler's release, such as `rustc 1.96.0`.
    pub(crate) fn version(self, root: &Path) -> anyhow::Result<String> {
        match self {
            Self::Pinned => version_of(Command::new("rustc").current_dir(root)),
            Self::Debian { .. } => {
                version_of(Command::new(DEBIAN_RUSTC).env_remove("LD_LIBRARY_PATH"))
            }
        }
    }

    /// The compiler's `cargo`.
    pub(crate) fn cargo(self) -> PathBuf {
        match self {
            Self::Pinned => env::var_os("CARGO")
                .unwrap_or_else(|| "cargo".into())
                .into(),
            Self::Debian { .. } => DEBIAN_CARGO.into(),
        }
    }

    /// A command that builds with this compiler in the workspace: `program`, which is its `cargo` or starts it.
    ///
    /// `cargo run` describes the native build in its child's environment: target directory, wrappers, flags. They would
    /// apply to this build too, so the command has none of them, and none of a developer's shell.
    pub(crate) fn command(self, root: &Path, program: &OsStr) -> Command {
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(is_of_another_build) {
                command.env_remove(&name);
            }
        }
        command.current_dir(root).env("CARGO", self.cargo());
        if let Self::Debian { .. } = self {
            // The outer cargo's library path names rustup's libraries, which are not this compiler's.
            command
                .env_remove("LD_LIBRARY_PATH")
                .env_remove("RUSTUP_TOOLCHAIN")
                .env("RUSTC", DEBIAN_RUSTC)
                .env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }
}

/// Flags by which a compiled program names its sources alike on every machine, in the form of `CARGO_ENCODED_RUSTFLAGS`,
/// after `flags`.
pub(crate) fn portable_flags(root: &Path, flags: &[&str]) -> anyhow::Result<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME names a folder")?;
    let registry = home.join("registry/src");
    let remap = |path: &Path, name: &str| format!("--remap-path-prefix={}={name}", path.display());
    let mut all: Vec<String> = flags.iter().map(ToString::to_string).collect();
    all.extend([remap(root, "isotherm"), remap(&registry, "crates")]);
    Ok(all.join("\u{1f}"))
}

/// The first two words of a compiler's version.
pub(crate) fn version_of(rustc: &mut Command) -> anyhow::Result<String> {
    let line = output(rustc.arg("--version"))?;
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

fn found_after(
    installed: anyhow::Result<()>,
    find: impl FnOnce() -> Option<Compiler>,
) -> anyhow::Result<Compiler> {
    installed?;
    find().context("installed, and yet there is no usable compiler")
}

fn is_of_another_build(variable: &str) -> bool {
    const PREFIXES: [&str; 10] = [
        "CARGO_BIN_",
        "CARGO_BUILD_",
        "CARGO_ENCODED_",
        "CARGO_MANIFEST_",
        "CARGO_PKG_",
        "CARGO_PRIMARY_",
        "CARGO_PROFILE_",
        "CARGO_TARGET_",
        "RUSTC",
        "RUSTDOC",
    ];
    const NAMES: [&str; 5] = [
        "CARGO",
        "CARGO_INCREMENTAL",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
        "RUSTFLAGS",
    ];
    NAMES.contains(&variable) || PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

fn rustup_target_add(root: &Path, target: &str) -> anyhow::Result<()> {
    install(
        Command::new("rustup")
            .args(["target", "add", target])
            .current_dir(root),
    )
}

fn apt_get_install(packages: &[&str]) -> anyhow::Result<()> {
    ensure!(
        output(Command::new("id").arg("-u"))?.trim() == "0",
        "needs root"
    );
    let apt_get = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    install(apt_get().arg("update"))?;
    // `rustc-web` conflicts with `rustc`: remove nothing that is installed.
    install(
        apt_get()
            .args(["install", "--yes", "--no-remove", "--no-install-recommends"])
            .args(packages),
    )
}

/// Announces and runs a command that changes the machine.
fn install(command: &mut Command) -> anyhow::Result<()> {
    announce(&format!(
        "no compiler for the target yet; running `{}`",
        command_line(command)
    ));
    run(command.stdin(Stdio::null()))
}

/// Major and minor version from a line such as `rustc 1.96.0 (ac68faa20 2026-05-25)`.
fn parse_version(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_versions_are_compared_as_numbers() {
        assert_eq!(
            parse_version("rustc 1.96.0 (ac68faa20 2026-05-25)"),
            Some((1, 96))
        );
        assert_eq!(parse_version("rustc 1.95"), Some((1, 95)));
        assert_eq!(parse_version("no such command"), None);
        assert!(parse_version("rustc 1.100.0") > parse_version("rustc 1.96.0"));
    }

    #[test]
    fn the_outer_build_leaves_no_trace_but_the_registry_settings_stay() {
        for variable in [
            "CARGO",
            "CARGO_TARGET_DIR",
            "RUSTC_WORKSPACE_WRAPPER",
            "RUSTFLAGS",
            "CARGO_PKG_NAME",
        ] {
            assert!(is_of_another_build(variable), "{variable}");
        }
        for variable in [
            "CARGO_HOME",
            "CARGO_REGISTRIES_MINE_INDEX",
            "CARGO_NET_OFFLINE",
            "RUSTUP_TOOLCHAIN",
            "PATH",
        ] {
            assert!(!is_of_another_build(variable), "{variable}");
        }
    }
}
