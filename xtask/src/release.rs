//! `release`: builds the programs as they are released, then writes the files of a release into one folder.
//!
//! The programs are static: Zig brings musl and a C compiler for each architecture, so one machine builds for both. For
//! tests `--profile dev` takes the debug programs that the suite has built anyway; every other step is the same.
//! `isotherm-release` writes the files: it needs more libraries than this program may have.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};

use crate::cargo::{build_all, cargo, output_directory, root, target_dir};
use crate::changelog::{self, UNRELEASED};
use crate::compiler::{Compiler, Target, portable_flags};
use crate::envoy;
use crate::filter::{self, Wasm};
use crate::process::{announce, output, run};
use crate::tools::{WHEEL, ZIG};

/// The version of the workspace, which every package shares.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The programs of a release, and their packages.
const PROGRAMS: [(&str, &str); 3] = [
    ("isotherm-ext-proc", "isotherm"),
    ("isotherm-engine", "isotherm-engine"),
    ("isotherm-demo", "isotherm-demo"),
];

/// The targets, by the architecture's name.
const TARGETS: [(&str, Target); 2] = [
    ("x86_64", musl("x86_64-unknown-linux-musl")),
    ("aarch64", musl("aarch64-unknown-linux-musl")),
];

const fn musl(name: &'static str) -> Target {
    Target {
        rustup: name,
        debian_packages: &[],
        debian_linkers: &[],
    }
}

/// Options of `release`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder of the release: new, or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Refuses any other version than this one, a tree with changes, and a changelog without the version's section
    #[arg(long)]
    version: Option<String>,
    /// Architectures of the programs
    #[arg(long, value_enum, default_value = "all")]
    arch: Architectures,
    /// How the programs are built
    #[arg(long, value_enum, default_value = "dist")]
    profile: Profile,
    /// Registry of the images that the chart names; without it, the one in Cargo.toml
    #[arg(long)]
    registry: Option<String>,
    /// Address of the source code, a label of the images
    #[arg(long, value_name = "URL")]
    source: Option<String>,
}

impl Arguments {
    /// A release of debug programs for this machine.
    pub(crate) fn for_tests(out: PathBuf) -> Self {
        Self {
            out,
            version: None,
            arch: Architectures::Host,
            profile: Profile::Dev,
            registry: None,
            source: None,
        }
    }
}

/// Architectures of a release.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Architectures {
    /// The architecture of this machine
    Host,
    /// x86-64 and arm64
    All,
}

/// How the programs are built.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Profile {
    /// Static, optimised across crates
    Dist,
    /// The debug programs of the suite, which need this machine's C library: for tests only
    Dev,
}

/// `cargo xtask release`.
pub(crate) fn write(arguments: &Arguments) -> anyhow::Result<()> {
    let root = root();
    if let Some(version) = &arguments.version {
        check_version(&root, version)?;
    }
    let architectures = architectures(arguments)?;
    let notes = notes(&root, arguments.version.as_deref())?;
    let filter = filter::build(&root, Wasm::Filter)?;
    let writer = build_writer(&root, arguments.profile)?;
    let python = WHEEL.obtain(&root)?.join("python3");
    let git = |arguments: &[&str]| {
        let printed = output(Command::new("git").current_dir(&root).args(arguments));
        printed.map(|text| text.trim().to_owned())
    };
    let mut write = Command::new(writer);
    write.arg("--root").arg(&root).args(["--version", VERSION]);
    write.arg("--out").arg(std::path::absolute(&arguments.out)?);
    write.args(["--revision", &git(&["rev-parse", "HEAD"])?]);
    write.args(["--time", &git(&["log", "-1", "--format=%ct"])?]);
    write.arg("--filter").arg(filter).arg("--notes").arg(notes);
    write.args(["--envoy", &envoy::pinned_version(&root)?]);
    write.arg("--python").arg(python);
    let registry = arguments.registry.clone();
    write.args([
        "--registry",
        &registry.map_or_else(|| registry_of(&root), Ok)?,
    ]);
    if let Some(source) = &arguments.source {
        write.args(["--source", source]);
    }
    for (name, target) in architectures {
        let programs = match arguments.profile {
            Profile::Dist => build_static(&root, target)?,
            Profile::Dev => build_for_tests(&root)?,
        };
        write
            .arg("--programs")
            .arg(format!("{name}={}", programs.display()));
    }
    if arguments.profile == Profile::Dev {
        write.arg("--dynamic");
    }
    announce("writing the release");
    run(&mut write)?;
    println!("{}", arguments.out.display());
    Ok(())
}

/// Builds `isotherm-release`, and returns the program.
fn build_writer(root: &Path, profile: Profile) -> anyhow::Result<PathBuf> {
    match profile {
        Profile::Dist => {
            announce("building isotherm-release");
            let mut build = cargo(root);
            run(build.args(["build", "--locked", "--package", "isotherm-release"]))?;
        }
        Profile::Dev => build_all(root)?,
    }
    Ok(target_dir(root).join("debug/isotherm-release"))
}

/// Fails unless this commit may carry the version.
fn check_version(root: &Path, version: &str) -> anyhow::Result<()> {
    ensure!(
        version == VERSION,
        "Cargo.toml says version {VERSION}, not {version}; change `version` of [workspace.package], and Chart.yaml"
    );
    changelog::section(&read(&root.join("CHANGELOG.md"))?, version)?;
    let mut git = Command::new("git");
    let changes = output(git.current_dir(root).args(["status", "--porcelain"]))?;
    ensure!(
        changes.is_empty(),
        "the tree has changes that no commit has:\n{}",
        changes.trim_end()
    );
    Ok(())
}

fn architectures(arguments: &Arguments) -> anyhow::Result<Vec<(&'static str, Target)>> {
    let is_host = |name: &str| name == env::consts::ARCH;
    if arguments.arch == Architectures::All {
        ensure!(
            arguments.profile == Profile::Dist,
            "the profile dev builds for this machine only; add --arch host"
        );
        return Ok(TARGETS.to_vec());
    }
    let host = TARGETS.into_iter().find(|(name, _)| is_host(name));
    let host = host.with_context(|| format!("there is no release for {}", env::consts::ARCH))?;
    Ok(vec![host])
}

/// Writes the notes of the version, or of what has none yet, and returns their file.
fn notes(root: &Path, version: Option<&str>) -> anyhow::Result<PathBuf> {
    let changelog = read(&root.join("CHANGELOG.md"))?;
    let notes = match version {
        Some(version) => changelog::section(&changelog, version)?,
        None => changelog::section(&changelog, UNRELEASED)
            .or_else(|_| changelog::section(&changelog, VERSION))?,
    };
    let folder = target_dir(root).join("programs");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join("NOTES.md");
    fs::write(&path, format!("{notes}\n"))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The registry in Cargo.toml: the line `registry = "..."` of [workspace.metadata.release].
fn registry_of(root: &Path) -> anyhow::Result<String> {
    let manifest = read(&root.join("Cargo.toml"))?;
    let line = manifest
        .lines()
        .find_map(|line| line.strip_prefix("registry = "));
    let line = line.context("Cargo.toml has no line `registry = \"...\"`")?;
    Ok(line.trim_matches('"').to_owned())
}

/// Builds the programs for a target, with its C library in them, and returns their folder.
fn build_static(root: &Path, target: Target) -> anyhow::Result<PathBuf> {
    announce(&format!("building the programs for {}", target.rustup));
    let compiler = Compiler::find_or_install(root, target)?;
    let zig = ZIG.obtain(root)?;
    let folder = target_dir(root).join("programs");
    let mut build = compiler.command(root, zig.join("cargo-zigbuild").as_os_str());
    build.args(["zigbuild", "--locked", "--profile", "dist"]);
    build
        .args(["--target", target.rustup, "--target-dir"])
        .arg(&folder);
    for (package, program) in PROGRAMS {
        build.args(["--package", package, "--bin", program]);
    }
    // A standard library built from source comes without musl's start files; Zig has its own.
    let mut flags = &[][..];
    if compiler != Compiler::Pinned {
        build.arg("-Zbuild-std=std,panic_unwind");
        flags = &["-C", "link-self-contained=no"];
    }
    // C code that asks when it is compiled gets one time for all commits: Zig's cache keeps the first answer.
    build.env("SOURCE_DATE_EPOCH", "0");
    let cache = output_directory(root).join("tools/zig-cache");
    build.env("CARGO_ZIGBUILD_CACHE_DIR", cache.join("cargo-zigbuild"));
    build.env("ZIG_GLOBAL_CACHE_DIR", &cache);
    build.env("ZIG_LOCAL_CACHE_DIR", &cache);
    build.env("CARGO_ZIGBUILD_PYTHON_PATH", zig.join("python3"));
    build.env("CARGO_ENCODED_RUSTFLAGS", portable_flags(root, flags)?);
    run(&mut build)?;
    Ok(folder.join(target.rustup).join("dist"))
}

/// Builds what the suite builds, and returns a folder with its programs, without their line tables.
fn build_for_tests(root: &Path) -> anyhow::Result<PathBuf> {
    build_all(root)?;
    let folder = target_dir(root).join("programs/dev");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    for (_, program) in PROGRAMS {
        let mut strip = Command::new("strip");
        strip
            .args(["--strip-debug", "-o"])
            .arg(folder.join(program));
        run(strip.arg(target_dir(root).join("debug").join(program)))?;
    }
    Ok(folder)
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_than_the_workspace_has_is_refused() {
        let error = check_version(&root(), "99.0.0").unwrap_err().to_string();
        assert!(error.contains("not 99.0.0"), "{error}");
        assert!(error.contains("[workspace.package]"), "{error}");
    }

    #[test]
    fn the_registry_stands_in_the_manifest() {
        let registry = registry_of(&root()).unwrap();
        assert!(
            !registry.is_empty() && !registry.contains('"'),
            "{registry}"
        );
    }
}
