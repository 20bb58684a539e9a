//! Pages about the command line, made from its own declarations: completions and manual pages.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command};
use clap_complete::Shell;

use super::output;

const NAME: &str = "isotherm";

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// Folder for a page of each command [default: the page of `isotherm` goes to standard output].
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,
}

pub(super) fn complete(args: &Completions, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut script);
    output::print(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(args: &Man, command: Command) -> anyhow::Result<ExitCode> {
    match &args.folder {
        Some(folder) => {
            let cannot_write = || format!("cannot write pages into {}", folder.display());
            std::fs::create_dir_all(folder).with_context(cannot_write)?;
            clap_mangen::generate_to(command, folder).with_context(cannot_write)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            output::print(&String::from_utf8(page)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
