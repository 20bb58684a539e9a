//! The standard output, whose reader may have seen enough: `isotherm explain … | head`.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Prints a text as it is.
///
/// # Errors
/// When it cannot be written for another reason than a closed pipe.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the standard output"),
    }
}
