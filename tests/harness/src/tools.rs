//! The paths of the programs and files that a stack needs. `cargo xtask` builds and downloads them.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// The programs and files of a stack.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Envoy: `ISOTHERM_ENVOY`, or the download of `cargo xtask envoy`, or `envoy` on `PATH`.
    pub envoy: PathBuf,
    /// Filter: `ISOTHERM_FILTER`, or the build of `cargo xtask filter`.
    pub filter: PathBuf,
    /// Service: `ISOTHERM_BIN`, or beside this program.
    pub isotherm: PathBuf,
    /// Simulated engine: `ISOTHERM_ENGINE_BIN`, or beside this program.
    pub engine: PathBuf,
    /// Directory of logs and generated files: `ISOTHERM_OUTPUT`, or `target` of the workspace.
    pub output: PathBuf,
}

impl Tools {
    /// Finds all programs and files.
    pub fn find() -> anyhow::Result<Self> {
        let output = output_directory();
        let envoy = from_environment("ISOTHERM_ENVOY")
            .or_else(|| downloaded(&output))
            .or_else(on_path);
        let filter = from_environment("ISOTHERM_FILTER")
            .unwrap_or_else(|| repository_file("target/filter/isotherm_filter.wasm"));
        Ok(Self {
            envoy: existing(envoy.unwrap_or_else(|| "envoy".into()), "cargo xtask envoy")?,
            filter: existing(filter, "cargo xtask filter")?,
            isotherm: service_program()?,
            engine: existing(
                program("ISOTHERM_ENGINE_BIN", "isotherm-engine")?,
                "cargo build -p isotherm-engine",
            )?,
            output,
        })
    }
}

/// Finds the service alone, for a test without Envoy.
pub fn service_program() -> anyhow::Result<PathBuf> {
    let program = program("ISOTHERM_BIN", "isotherm")?;
    existing(program, "cargo build -p isotherm-ext-proc")
}

/// Returns the directory of logs and generated files: `ISOTHERM_OUTPUT`, or `target` of the workspace.
pub fn output_directory() -> PathBuf {
    from_environment("ISOTHERM_OUTPUT").unwrap_or_else(|| root().join("target"))
}

/// Returns the path of a file of the repository.
pub fn repository_file(path: &str) -> PathBuf {
    root().join(path)
}

/// Finds a program that `cargo xtask mesh-tools` builds: in `ISOTHERM_MESH_TOOLS`, or in the cache of the user.
/// `ISOTHERM_MESH_PROGRAMS` has the names of those in the pinned version, where `cargo xtask` starts this process.
/// Fails with the command that builds the program.
pub fn mesh_program(name: &str) -> anyhow::Result<PathBuf> {
    let command = format!("cargo xtask mesh-tools --only {name}");
    if let Ok(pinned) = env::var("ISOTHERM_MESH_PROGRAMS") {
        let is_pinned = pinned.split(',').any(|program| program == name);
        ensure!(
            is_pinned,
            "no {name} in the pinned version; run `{command}`"
        );
    }
    let cache = from_environment("XDG_CACHE_HOME")
        .or_else(|| from_environment("HOME").map(|home| home.join(".cache")));
    let folder = from_environment("ISOTHERM_MESH_TOOLS")
        .or_else(|| cache.map(|cache| cache.join("isotherm/mesh-tools")));
    let folder = folder.context("neither ISOTHERM_MESH_TOOLS nor HOME is set")?;
    existing(folder.join(name), &command)
}

/// The workspace's root, from the package that Cargo runs, or from the current directory. No path of the machine that built
/// the program stands in it.
fn root() -> PathBuf {
    let package = from_environment("CARGO_MANIFEST_DIR");
    let here = package.or_else(|| env::current_dir().ok());
    let here = here.unwrap_or_default();
    let mut folders = here.ancestors();
    let root = folders.find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(&here).to_path_buf()
}

fn from_environment(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from)
}

fn existing(path: PathBuf, command: &str) -> anyhow::Result<PathBuf> {
    path.canonicalize()
        .with_context(|| format!("no {}; run `{command}`", path.display()))
}

/// A program of this workspace, in the directory of this program, which may be a test.
fn program(variable: &str, name: &str) -> anyhow::Result<PathBuf> {
    if let Some(given) = from_environment(variable) {
        return Ok(given);
    }
    let this = env::current_exe().context("cannot find the path of this program")?;
    let directory = this.parent().unwrap_or(&this);
    let directory = match directory.file_name().and_then(|name| name.to_str()) {
        Some("deps" | "examples") => directory.parent().unwrap_or(directory),
        _ => directory,
    };
    Ok(directory.join(name))
}

/// Finds the Envoy with which the tests run a control plane, by the table in `envoy/envoy-version.toml`.
pub fn control_plane_envoy(control_plane: &str) -> anyhow::Result<PathBuf> {
    let version = pinned_version(control_plane);
    let version = version.with_context(|| format!("no Envoy is named for {control_plane}"))?;
    let path = downloaded_path(&output_directory(), &version);
    existing(path, &format!("cargo xtask envoy --version {version}"))
}

/// Finds the controller of Envoy AI Gateway, which `ISOTHERM_AI_GATEWAY` names: the image of its release has it.
pub fn ai_gateway_controller() -> anyhow::Result<PathBuf> {
    const VARIABLE: &str = "ISOTHERM_AI_GATEWAY";
    let program = from_environment(VARIABLE).filter(|program| !program.as_os_str().is_empty());
    let program = program.with_context(|| {
        format!("{VARIABLE} does not name the controller of Envoy AI Gateway 1.1")
    })?;
    ensure!(program.is_file(), "{VARIABLE}: no {}", program.display());
    Ok(program)
}

/// The downloaded Envoy of the pinned version.
fn downloaded(output: &Path) -> Option<PathBuf> {
    let path = downloaded_path(output, &pinned_version("version")?);
    path.is_file().then_some(path)
}

/// Where `cargo xtask envoy` puts a version.
fn downloaded_path(output: &Path, version: &str) -> PathBuf {
    output.join("envoy").join(version).join("envoy")
}

/// The version of Envoy under a name in `envoy/envoy-version.toml`.
fn pinned_version(name: &str) -> Option<String> {
    let pins = std::fs::read_to_string(root().join("envoy/envoy-version.toml")).ok()?;
    let start = format!("{name} = ");
    let version = pins.lines().find_map(|line| line.strip_prefix(&start))?;
    Some(version.trim_matches('"').to_owned())
}

fn on_path() -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|directory| directory.join("envoy"))
        .find(|path| path.is_file())
}
