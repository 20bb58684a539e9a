//! A root folder without Rust and without this repository, in which a test's script runs.
//!
//! Each script has a copy of its own: a layer in memory above the root folder of a bare Debian, or above this machine's
//! own where debootstrap made none. There, Rust, the repository and the homes of users are hidden. Nothing reaches the
//! machine below, and the last process takes the mounts with it.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::files::{folder, successful, variable};

/// Options of `unshare`: as root, and as a user where the system allows it.
const UNSHARE: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];

/// Makes the root, then starts the script `$1` in it.
const ENTER: &str = r#"
set -eu
mount -t tmpfs tmpfs "$SCRATCH"
mkdir "$SCRATCH/upper" "$SCRATCH/work" "$SCRATCH/root"
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$SCRATCH/upper,workdir=$SCRATCH/work" "$SCRATCH/root"
cd "$SCRATCH/root"
for folder in $HIDDEN; do
    mkdir -p ".$folder"
    mount -t tmpfs tmpfs ".$folder"
done
rm -f usr/bin/rustc usr/bin/cargo usr/local/bin/rustc usr/local/bin/cargo
mkdir -p release wheels proc dev tmp
mount --bind "$RELEASE" release
mount --bind "$WHEELS" wheels
mount -t proc proc proc
mount --rbind /dev dev
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LANG=C.UTF-8 chroot . /bin/sh -euxc "$1"
"#;

/// Runs a script in a root of its own, and returns its standard output. Says which root it took.
pub(crate) fn run(script: &str) -> anyhow::Result<String> {
    let scratch = tempfile::tempdir()?;
    let lower = env::var_os("ISOTHERM_ROOT").map(PathBuf::from);
    match &lower {
        Some(lower) => println!("in a bare Debian, {}", lower.display()),
        None => {
            println!("in this machine's root, with Rust and the repository hidden: no debootstrap")
        }
    }
    let hidden = if lower.is_none() {
        hidden()
    } else {
        Vec::new()
    };
    let mut unshare = Command::new("unshare");
    unshare.args(isolation()?).args(["--fork", "--kill-child"]);
    unshare.args(["sh", "-c", ENTER, "sh", script]);
    unshare.env("SCRATCH", scratch.path());
    unshare.env("LOWER", lower.unwrap_or_else(|| "/".into()));
    unshare.env("HIDDEN", hidden.join(" "));
    unshare.env("RELEASE", folder()?);
    unshare.env("WHEELS", variable("ISOTHERM_WHEELS")?);
    let output = successful(&mut unshare)?;
    Ok(String::from_utf8(output.stdout)?)
}

/// Options of `unshare` that this system allows.
fn isolation() -> anyhow::Result<Vec<&'static str>> {
    let mut refusal = None;
    for options in UNSHARE {
        let options = [&["--mount", "--pid"], options].concat();
        let mut probe = Command::new("unshare");
        match successful(probe.args(&options).args(["--fork", "true"])) {
            Ok(_) => return Ok(options),
            Err(error) => refusal = Some(error),
        }
    }
    let refusal = refusal.context("no way to a root of its own")?;
    Err(refusal).context("no root of its own here (`unshare --mount --pid`)")
}

/// Folders of this machine that a user's machine does not have.
fn hidden() -> Vec<String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let variables = ["HOME", "CARGO_HOME", "RUSTUP_HOME"].map(env::var_os);
    let variables = variables.into_iter().flatten().map(PathBuf::from);
    let mut folders: Vec<String> = repository
        .map(Path::to_path_buf)
        .into_iter()
        .chain(variables)
        .map(|path| path.display().to_string())
        .collect();
    // A folder comes before those in it, which would be gone.
    folders.sort();
    folders.dedup();
    folders
}

#[test]
fn a_bare_root_has_neither_rust_nor_the_repository() -> anyhow::Result<()> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = format!(
        "if command -v cargo || command -v rustc; then exit 1; fi\n\
         test ! -e {}/Cargo.toml\n\
         ls /release",
        repository.display()
    );
    let listed = run(&script)?;
    ensure!(listed.contains("SHA256SUMS"), "{listed}");
    Ok(())
}
