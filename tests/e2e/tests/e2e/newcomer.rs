//! The README and the quickstart as a newcomer follows them: their commands, as written, in a fresh clone.
//!
//! The clone has a network of its own, so every address and port is the document's. The programs that are built already are in
//! reach of it. A server stays in the background for the commands behind it. A command that needs a server is repeated until
//! it succeeds, as a person would repeat it. Where the system allows no network of its own, the tests are skipped, except in
//! CI, where they fail.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isotherm_e2e::permit;
use isotherm_harness::process::Process;
use isotherm_harness::tools::repository_file;
use isotherm_harness::{MODEL, Tools};
use tempfile::TempDir;

use super::documents::blocks_of;

/// Commands that are left out, and why.
const LEFT_OUT: [(&str, &str); 6] = [
    (
        "pip install",
        "`cargo xtask install` installs a release, and uses it",
    ),
    ("isotherm try", "it is in a release"),
    ("isotherm run", "it is in a release"),
    (
        "cargo xtask build",
        "the programs in reach are those of this very tree",
    ),
    (
        "cargo xtask demo",
        "the demo has tests of its own, and plays for minutes",
    ),
    ("cargo xtask test", "this test is a part of it"),
];
/// Programs that run until a signal.
const SERVERS: [&str; 4] = [
    "target/release/isotherm serve",
    "target/release/isotherm-engine",
    "envoy ",
    "$(cargo xtask envoy)",
];
/// Longest run of a document's commands.
const RUN_MAX: Duration = Duration::from_secs(300);

/// The beginning of the script. The documents' engines beyond the quickstart need GPUs: simulated ones take their addresses.
const PREAMBLE: &str = r#"
set -euo pipefail
ip link set lo up
servers=()
trap 'kill "${servers[@]}"' EXIT
server() { bash -c "exec $1" >> servers.log 2>&1 & servers+=($!); }
repeated() {
  for attempt in $(seq 600); do
    if output=$(bash -c "$1" 2>&1) && [[ $output != *'"error"'* ]]; then echo "$output"; return; fi
    sleep 0.2
  done
  echo "failed: $1: $output"; tail -n 40 servers.log; exit 1
}
engine() {
  ip address add "${1%:*}/32" dev lo
  server "target/release/isotherm-engine --model $MODEL --listen $1 --speed 10"
}
"#;

/// A clone of the tree with the built programs in reach.
fn clone(tools: &Tools, folder: &Path) -> anyhow::Result<PathBuf> {
    let clone = folder.join("clone");
    let mut command = Command::new("git");
    command
        .args(["clone", "--quiet", "--shared"])
        .arg(repository_file(""))
        .arg(&clone);
    let output = command.output().context("git is needed")?;
    ensure!(output.status.success(), "{output:?}");
    let target = clone.join("target");
    fs::create_dir_all(&target)?;
    let programs = tools.isotherm.parent().context("no folder")?;
    symlink(programs, target.join("release"))?;
    symlink(
        tools.filter.parent().context("no folder")?,
        target.join("filter"),
    )?;
    // `cargo xtask envoy` fetches Envoy and prints where it is. It is here already.
    let cargo = folder.join("cargo");
    fs::write(
        &cargo,
        "#!/bin/sh\ntest \"$*\" = 'xtask envoy' && echo \"$ENVOY\"\n",
    )?;
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
    Ok(clone)
}

/// The script of a document's commands, and the commands that are left out.
fn script(page: &str, text: &str, engines: &[&str]) -> (String, Vec<&'static str>) {
    let mut script = PREAMBLE.to_owned();
    let mut left_out = Vec::new();
    for engine in engines {
        script.push_str(&format!("engine {engine}\n"));
    }
    let blocks = blocks_of(page, text).into_iter();
    for block in blocks.filter(|block| block.language == "sh" && block.is_fenced) {
        for line in block.code.lines() {
            let out = LEFT_OUT
                .iter()
                .find(|(command, _)| line.starts_with(command));
            if let Some((command, _)) = out {
                left_out.push(*command);
                continue;
            }
            let is_server = SERVERS.iter().any(|server| line.starts_with(server));
            let word = if is_server { "server" } else { "repeated" };
            let quoted = line.replace('\'', "'\\''");
            script.push_str(&format!("{word} '{quoted}'\n"));
        }
    }
    (script, left_out)
}

/// Whether a command can have a network of its own.
fn has_own_network() -> anyhow::Result<bool> {
    let mut probe = Command::new("unshare");
    let probed = probe
        .args(["--net", "ip", "link", "set", "lo", "up"])
        .output();
    let is_possible = probed.is_ok_and(|output| output.status.success());
    ensure!(
        is_possible || std::env::var_os("CI").is_none(),
        "no network of its own here (`unshare --net`, `ip`)"
    );
    Ok(is_possible)
}

/// Follows a document; returns the output of its commands.
async fn follow(page: &str, engines: &[&str], expected: &[&str]) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    if !has_own_network()? {
        eprintln!("SKIPPED: no network of its own here");
        return Ok(());
    }
    let tools = Tools::find()?;
    fs::create_dir_all(tools.output.join("stacks"))?;
    let folder = TempDir::new_in(tools.output.join("stacks"))?;
    let clone = clone(&tools, folder.path())?;
    let text = fs::read_to_string(clone.join(page))?;
    let (script, left_out) = script(page, &text, engines);
    assert_eq!(left_out, expected, "{page}");
    let envoy = tools.envoy.parent().context("no folder")?.display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("unshare");
    command
        .args(["--net", "bash", "-c", &script])
        .current_dir(&clone)
        .env(
            "PATH",
            format!("{}:{envoy}:{path}", folder.path().display()),
        )
        .env("ENVOY", &tools.envoy)
        .env("MODEL", MODEL);
    let mut process = Process::start(page, &mut command, &folder.path().join("commands.log"))?;
    process.wait_until_ended(RUN_MAX).await?;
    let log = process.log();
    for part in ["\"choices\"", "no known faults"] {
        ensure!(log.contains(part), "{page}: no {part} in\n{log}");
    }
    Ok(())
}

#[tokio::test]
async fn the_commands_of_the_readme_lead_to_an_answer() -> anyhow::Result<()> {
    let engines = ["10.0.0.11:8000", "10.0.0.12:8000"];
    let left_out = [
        "pip install",
        "isotherm try",
        "isotherm run",
        "cargo xtask demo",
        "cargo xtask test",
        "cargo xtask build",
    ];
    follow("README.md", &engines, &left_out).await
}

#[tokio::test]
async fn the_commands_of_the_quickstart_lead_to_an_answer() -> anyhow::Result<()> {
    follow("docs/quickstart.md", &[], &["cargo xtask build"]).await
}
