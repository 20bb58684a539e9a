//! Builds the filter, `target/filter/isotherm_filter.wasm`, and the modules that only benches use.
//!
//! The pinned toolchain builds for `wasm32-wasip1`. Debian's compiler, which compiles its own standard library, builds for
//! `wasm32-unknown-unknown`: `wasm32-wasip1` would need a libc that Debian does not have. Rejected: building in the
//! workspace's target directory, where the flags of the filter and of the other crates evict each other, and where the
//! `cargo` that runs this program may hold the lock.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::compiler::{Compiler, Target, portable_flags};
use crate::exports;
use crate::process::run;

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

/// The target of the pinned toolchain, and the linkers of Debian's compiler.
const TARGET: Target = Target {
    rustup: "wasm32-wasip1",
    debian_packages: &["lld-19"],
    debian_linkers: &["/usr/bin/wasm-ld-19", "/usr/bin/wasm-ld"],
};
/// The target that needs no libc, for a standard library built from source.
const BARE_TARGET: &str = "wasm32-unknown-unknown";
/// SIMD lets the scanner for JSON structure look at 16 bytes at once; every engine in Envoy has it.
const FLAGS: [&str; 2] = ["-C", "target-feature=+simd128"];

/// Builds a module of the workspace at `root` and returns its path.
///
/// Installs a missing compiler: a rustup target, or packages as root on Debian. Announces each such step.
pub(crate) fn build(root: &Path, wasm: Wasm) -> anyhow::Result<PathBuf> {
    let artifact = wasm.artifact();
    let compiler = Compiler::find_or_install(root, TARGET)?;
    let directory = root.join("target").join("filter");
    let build_directory = directory.join("build");
    println!("filter: building {artifact} with {}", describe(compiler));

    let mut build = cargo(compiler, root)?;
    build.args(["build", "--locked", "--package", wasm.package()]);
    build.args(["--profile", "wasm", "--target-dir"]);
    run(build.arg(&build_directory)).with_context(|| format!("{artifact} does not build"))?;

    let built = build_directory.join(target_of(compiler)).join("wasm");
    let built = built.join(artifact);
    let module = directory.join(artifact);
    publish(&built, &module, wasm.callbacks())?;
    Ok(module)
}

/// The release and the target of the compiler that builds modules here, such as `rustc 1.96.0, wasm32-wasip1`.
pub(crate) fn compiler(root: &Path) -> anyhow::Result<String> {
    let compiler = Compiler::find_or_install(root, TARGET)?;
    Ok(format!(
        "{}, {}",
        compiler.version(root)?,
        target_of(compiler)
    ))
}

fn describe(compiler: Compiler) -> String {
    match compiler {
        Compiler::Pinned => format!("the installed {} target", TARGET.rustup),
        Compiler::Debian { .. } => {
            format!("Debian's compiler and a standard library built from source ({BARE_TARGET})")
        }
    }
}

fn target_of(compiler: Compiler) -> &'static str {
    match compiler {
        Compiler::Pinned => TARGET.rustup,
        Compiler::Debian { .. } => BARE_TARGET,
    }
}

/// `cargo` for the target of modules.
fn cargo(compiler: Compiler, root: &Path) -> anyhow::Result<Command> {
    let mut cargo = compiler.command(root, compiler.cargo().as_os_str());
    cargo.env("CARGO_ENCODED_RUSTFLAGS", portable_flags(root, &FLAGS)?);
    if let Compiler::Debian { linker } = compiler {
        let linker = linker.context("Debian's way needs a linker")?;
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker);
        cargo.arg("-Zbuild-std=std,panic_abort");
    }
    cargo.args([
        "--config",
        &format!("build.target={:?}", target_of(compiler)),
    ]);
    Ok(cargo)
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
