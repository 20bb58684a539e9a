//! Starts other programs, and announces each step of a chore.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Announces a step on standard error; standard output is for results.
pub(crate) fn say(what: &str) {
    eprintln!("==> {what}");
}

/// Runs a program to its end and shows its output. A failure names the command.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let shown = shown(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a program to its end and returns its standard output. A failure holds its standard error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command line, for messages.
pub(crate) fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
