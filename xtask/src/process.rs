//! Starts other programs, and announces each step of a chore.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Announces a step on standard error; standard output is for results.
pub(crate) fn announce(what: &str) {
    eprintln!("==> {what}");
}

/// Runs a program to its end and shows its output. A failure names the command.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let command_line = command_line(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{command_line}`"))?;
    if !status.success() {
        bail!("`{command_line}` failed ({status})");
    }
    Ok(())
}

/// Runs a program to its end and returns its standard output. A failure holds its standard error.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let command_line = command_line(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{command_line}`"))?;
    if !output.status.success() {
        bail!(
            "`{command_line}` failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command line, for messages.
pub(crate) fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
