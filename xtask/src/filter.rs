//! Builds the filter, `target/filter/isotherm_filter.wasm`, and the modules that only benches use.
//!
//! Machines differ, so there are three ways to a WebAssembly compiler:
//! 1. the pinned toolchain, where the `wasm32-wasip1` standard library is installed;
//! 2. the same after `rustup target add`, where rustup can download it;
//! 3. Debian's `rustc-web`, which compiles its own standard library for `wasm32-unknown-unknown` (`wasm32-wasip1` would
//!    need a libc that Debian does not have).
//!
//! An installed compiler comes before a download, so that a machine without a network does not wait for a failing
//! download at each build. Rejected: building in the workspace's target directory, where the flags of the filter and of
//! the other crates evict each other, and where the `cargo` that runs this program may hold the lock.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};

use crate::exports;
use crate::process::{command_line, output, run};

/// A crate that is a WebAssembly module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wasm {
    /// The filter that Envoy loads.
    Filter,
    /// The floor of `bench path` (a filter that only copies), and the core, to be timed inside a sandbox.
    BenchFilter,
}

impl Wasm {
    fn package(self) -> &'static str {
        match self {
            Self::Filter => "isotherm-wasm-filter",
            Self::BenchFilter => "isotherm-bench-filter",
        }
    }

    /// Callbacks of the module besides those of a request.
    fn callbacks(self) -> &'static [&'static str] {
        match self {
            Self::Filter => &[
                "proxy_on_tick",
                "proxy_on_queue_ready",
                "proxy_on_grpc_receive",
                "proxy_on_grpc_close",
            ],
            Self::BenchFilter => &["proxy_on_tick"],
        }
    }

    /// The file name that `cargo` gives to the module.
    fn artifact(self) -> &'static str {
        match self {
            Self::Filter => "isotherm_filter.wasm",
            Self::BenchFilter => "isotherm_bench_filter.wasm",
        }
    }
}

/// The target that rustup has a standard library for.
const RUSTUP_TARGET: &str = "wasm32-wasip1";
/// The target that needs no libc, for a standard library built from source.
const BARE_TARGET: &str = "wasm32-unknown-unknown";
/// SIMD lets the scanner for JSON structure look at 16 bytes at once; every engine in Envoy has it.
const RUSTFLAGS: &str = "-C target-feature=+simd128";
/// Debian packages of the third way.
const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld-19"];
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_STD_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/std/Cargo.toml";
const DEBIAN_LINKERS: [&str; 2] = ["/usr/bin/wasm-ld-19", "/usr/bin/wasm-ld"];

/// Builds a module of the workspace at `root` and returns its path.
///
/// Installs a missing compiler: a rustup target, or packages as root on Debian. Announces each such step.
pub(crate) fn build(root: &Path, wasm: Wasm) -> anyhow::Result<PathBuf> {
    let artifact = wasm.artifact();
    let compiler = Compiler::find_or_install(root)?;
    let directory = root.join("target").join("filter");
    let build_directory = directory.join("build");
    println!("filter: building {artifact} with {}", compiler.describe());

    let mut build = compiler.cargo(root);
    build.args(["build", "--locked", "--package", wasm.package()]);
    build.args(["--profile", "wasm", "--target-dir"]);
    run(build.arg(&build_directory)).with_context(|| format!("{artifact} does not build"))?;

    let built = build_directory.join(compiler.target()).join("wasm");
    let built = built.join(artifact);
    let module = directory.join(artifact);
    publish(&built, &module, wasm.callbacks())?;
    Ok(module)
}

/// The release and the target of the compiler that builds modules here, such as `rustc 1.96.0, wasm32-wasip1`.
pub(crate) fn compiler(root: &Path) -> anyhow::Result<String> {
    let compiler = Compiler::find_or_install(root)?;
    let version = match compiler {
        Compiler::Pinned => version_of(Command::new("rustc").current_dir(root))?,
        Compiler::Debian { .. } => {
            version_of(Command::new(DEBIAN_RUSTC).env_remove("LD_LIBRARY_PATH"))?
        }
    };
    Ok(format!("{version}, {}", compiler.target()))
}

/// The first two words of a compiler's version.
pub(crate) fn version_of(rustc: &mut Command) -> anyhow::Result<String> {
    let line = output(rustc.arg("--version"))?;
    let words: Vec<&str> = line.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

/// A compiler that is ready to build the filter.
#[derive(Debug)]
enum Compiler {
    /// The toolchain that runs this program, with the standard library for [`RUSTUP_TARGET`].
    Pinned,
    /// Debian's, which compiles its own standard library for [`BARE_TARGET`].
    Debian { linker: &'static str },
}

impl Compiler {
    fn find_or_install(root: &Path) -> anyhow::Result<Self> {
        if let Some(found) = Self::pinned(root).or_else(Self::debian) {
            return Ok(found);
        }
        let rustup = match found_after(rustup_target_add(root), || Self::pinned(root)) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => error,
        };
        let debian = match found_after(apt_get_install(), Self::debian) {
            Ok(compiler) => return Ok(compiler),
            Err(error) => error,
        };
        bail!(
            "no compiler for the WebAssembly filter. Any one of these helps:\n  \
             1. install the {RUSTUP_TARGET} standard library of the Rust that you use;\n  \
             2. with rustup: `rustup target add {RUSTUP_TARGET}` (tried: {rustup:#});\n  \
             3. on Debian, as root: `apt-get install {}` (tried: {debian:#})",
            DEBIAN_PACKAGES.join(" "),
        )
    }

    fn pinned(root: &Path) -> Option<Self> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", RUSTUP_TARGET]);
        let libraries = output(rustc.current_dir(root)).ok()?;
        let mut libraries = fs::read_dir(libraries.trim()).ok()?.flatten();
        libraries
            .any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
            .then_some(Self::Pinned)
    }

    fn debian() -> Option<Self> {
        let exists = |path: &&str| Path::new(path).exists();
        let linker = DEBIAN_LINKERS.into_iter().find(exists)?;
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

    fn describe(&self) -> String {
        match self {
            Self::Pinned => format!("the installed {RUSTUP_TARGET} target"),
            Self::Debian { linker } => {
                format!(
                    "Debian's compiler and a standard library built from source ({BARE_TARGET}, {linker})"
                )
            }
        }
    }

    fn target(&self) -> &'static str {
        match self {
            Self::Pinned => RUSTUP_TARGET,
            Self::Debian { .. } => BARE_TARGET,
        }
    }

    /// `cargo` in the workspace, without the variables that an outer `cargo` or a developer's shell has set.
    ///
    /// `cargo run` describes the native build in its child's environment: target directory, wrappers, flags. They would
    /// apply to this build too.
    fn cargo(&self, root: &Path) -> Command {
        let mut cargo = match self {
            Self::Pinned => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
            Self::Debian { .. } => Command::new(DEBIAN_CARGO),
        };
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(is_of_another_build) {
                cargo.env_remove(&name);
            }
        }
        cargo.current_dir(root).env("RUSTFLAGS", RUSTFLAGS);
        if let Self::Debian { linker } = self {
            // The outer cargo's library path names rustup's libraries, which are not this compiler's.
            cargo
                .env_remove("LD_LIBRARY_PATH")
                .env_remove("RUSTUP_TOOLCHAIN")
                .env("RUSTC", DEBIAN_RUSTC)
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
                .arg("-Zbuild-std=std,panic_abort");
        }
        cargo.args(["--config", &format!("build.target={:?}", self.target())]);
        cargo
    }
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

fn rustup_target_add(root: &Path) -> anyhow::Result<()> {
    install(
        Command::new("rustup")
            .args(["target", "add", RUSTUP_TARGET])
            .current_dir(root),
    )
}

fn apt_get_install() -> anyhow::Result<()> {
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
            .args(DEBIAN_PACKAGES),
    )
}

/// Announces and runs a command that changes the machine.
fn install(command: &mut Command) -> anyhow::Result<()> {
    println!(
        "filter: no compiler for WebAssembly yet; running `{}`",
        command_line(command)
    );
    run(command.stdin(Stdio::null()))
}

/// Moves a changed module to the path that Envoy and the tests read, in one step.
fn publish(built: &Path, module: &Path, callbacks: &[&str]) -> anyhow::Result<()> {
    let fresh = fs::read(built)
        .with_context(|| format!("cannot read the built module {}", built.display()))?;
    let fresh = exports::prune(&fresh, callbacks)?;
    if fs::read(module).is_ok_and(|present| present == fresh) {
        return Ok(());
    }
    let partial = module.with_extension("wasm.part");
    fs::write(&partial, &fresh)
        .and_then(|()| fs::rename(&partial, module))
        .with_context(|| format!("cannot write {}", module.display()))?;
    println!("filter: {} ({} KB)", module.display(), fresh.len() / 1024);
    Ok(())
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
