//! The standard output.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Prints a text. A closed pipe, as in `isotherm explain … | head`, is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the standard output"),
    }
}
