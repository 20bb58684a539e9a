//! `isotherm-release`: writes the files of a release into one folder, from finished programs.

use std::process::ExitCode;

use clap::Parser as _;
use isotherm_release::{folder, release::Release};

fn main() -> ExitCode {
    match folder::write(&Release::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
