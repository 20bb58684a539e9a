//! `isotherm try`: the demo in an empty folder, by the programs of an installation.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::ensure;
use isotherm_e2e::permit;
use isotherm_harness::Tools;
use serde_json::Value;
use tempfile::TempDir;

#[tokio::test]
async fn the_demo_ends_with_a_report_in_its_folder() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let mut command = Command::new(&tools.isotherm);
    command
        .args(["try", "--requests", "60", "--no-open", "--envoy"])
        .arg(&tools.envoy)
        .arg("--filter")
        .arg(&tools.filter)
        .current_dir(folder.path())
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    ensure!(output.status.success(), "{output:?}");
    let report = folder
        .path()
        .canonicalize()?
        .join("isotherm-try/report.html");
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(
        printed.contains(&format!("The report: {}\n", report.display())),
        "{printed}"
    );
    ensure!(fs::read_to_string(&report)?.contains("<html"));
    let figures: Value = serde_json::from_slice(&fs::read(report.with_extension("json"))?)?;
    let text = figures.to_string();
    ensure!(
        text.contains("round_robin") && text.contains("isotherm"),
        "{text}"
    );
    ensure!(fs::read_dir(folder.path())?.count() == 1, "other files");
    Ok(())
}
