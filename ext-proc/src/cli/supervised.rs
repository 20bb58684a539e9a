//! The start of a program that ends with its supervisor, however that ends.
//!
//! The system kills a process at the death of its parent only when the process itself asks for that. So `isotherm run` starts this
//! program, which asks and then becomes the program to supervise. Rejected: a `pre_exec` of the supervisor, which is unsafe.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::Command;

use anyhow::{Context as _, ensure};
use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};

#[derive(Debug, Args)]
pub(super) struct SupervisedCommand {
    /// Process id of the supervisor.
    #[arg(long)]
    parent: u32,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// The arguments with which this program becomes another program of this process.
pub(super) fn arguments(command: &[OsString]) -> Vec<OsString> {
    let own = std::process::id().to_string();
    let start = ["supervised", "--parent", &own, "--"].map(OsString::from);
    start.into_iter().chain(command.iter().cloned()).collect()
}

/// Becomes the program of the command line.
pub(super) fn run(args: &SupervisedCommand) -> anyhow::Result<Infallible> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot ask for a signal at the end of the supervisor")?;
    ensure!(parent_id() == args.parent, "the supervisor has ended");
    let (program, arguments) = args.command.split_first().context("no program")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
