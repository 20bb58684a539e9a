//! `isotherm try`: the demo of an installation without Rust.
//!
//! The programs `isotherm-demo` and `isotherm-engine` of the package do the work. This command finds them, Envoy and the filter, names
//! them to the demo by the variables that `cargo xtask` sets, and opens the report. Rejected: the demo inside this program, which would link
//! the simulator and the charts into the service.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{IsTerminal as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use tokio::process::Command;

use super::installation::Installation;
use super::{output, supervised};

/// The policies that the demo compares.
const POLICIES: &str = "isotherm,round_robin";

#[derive(Debug, Args)]
pub(super) struct Trial {
    /// Folder of the report and the logs. The command makes it.
    #[arg(long, value_name = "FOLDER", default_value = "isotherm-try")]
    output: PathBuf,
    /// Requests that each policy gets.
    #[arg(long, value_name = "N", default_value_t = 240, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    requests: u32,
    /// Envoy's program [default: as for `isotherm run`].
    #[arg(long, value_name = "FILE")]
    envoy: Option<PathBuf>,
    /// The filter's module [default: as for `isotherm run`].
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,
    /// Do not open the report in a browser.
    #[arg(long)]
    no_open: bool,
}

pub(super) async fn run(args: &Trial) -> anyhow::Result<ExitCode> {
    let installation = Installation::of_this_program()?;
    let filter = installation.filter(args.filter.as_deref())?;
    let envoy = installation.envoy(args.envoy.as_deref())?;
    let demo = installation.demo_program("isotherm-demo")?;
    let engine = installation.demo_program("isotherm-engine")?;
    let own = env::current_exe().context("the path of this program cannot be found")?;
    let folder = &args.output;
    let folder = fs::create_dir_all(folder)
        .and_then(|()| folder.canonicalize())
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut words: Vec<OsString> = vec![demo.into(), "demo".into()];
    words.extend(["--policy", POLICIES, "--requests"].map(OsString::from));
    words.push(args.requests.to_string().into());
    words.extend(["--output".into(), folder.clone().into()]);
    let demo = Command::new(&own)
        .args(supervised::arguments(&words))
        .env("ISOTHERM_ENVOY", envoy)
        .env("ISOTHERM_FILTER", filter)
        .env("ISOTHERM_BIN", &own)
        .env("ISOTHERM_ENGINE_BIN", engine)
        .env("ISOTHERM_OUTPUT", &folder)
        .env(
            "ISOTHERM_COMMAND",
            format!("isotherm try --requests {}", args.requests),
        )
        .status()
        .await
        .context("cannot start the demo")?;
    if !demo.success() {
        bail!(
            "the demo has failed ({demo}); {} has its logs",
            folder.join("stacks").display()
        );
    }
    let report = folder.join("report.html");
    output::print(&format!("\nThe report: {}\n", report.display()))?;
    if !args.no_open
        && has_desktop()
        && let Err(error) = open::that_detached(&report)
    {
        output::note(&format!("warning: no browser can be started: {error}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a person sits at a terminal of a desktop.
fn has_desktop() -> bool {
    let displays = ["DISPLAY", "WAYLAND_DISPLAY"];
    let has_display = displays.iter().any(|name| env::var_os(name).is_some());
    has_display && stdout().is_terminal()
}
