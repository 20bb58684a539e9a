//! The standard output, and plain text tables for it.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

/// The option of every command that prints a table.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct JsonFlag {
    /// Print JSON instead of a table, for scripts.
    #[arg(long)]
    pub(super) json: bool,
}

impl JsonFlag {
    /// Prints a value as JSON, or else as the text that `render` makes of it.
    pub(super) fn print<T: Serialize>(
        self,
        value: &T,
        render: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        match self.json {
            true => print(&format!("{}\n", serde_json::to_string_pretty(value)?)),
            false => print(&render(value)),
        }
    }
}

/// Prints a text. A closed pipe, as in `isotherm explain … | head`, is no error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write the standard output"),
    }
}

/// Writes a message to the standard error. Without one the message is lost, and the command goes on.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Renders `rows` below `header`, columns separated by two spaces.
pub(super) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// Formats a value, or `-` for an unknown one.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Formats a share from 0 to 1 as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_spaces() {
        let rows = vec![
            vec!["a".into(), "1".into()],
            vec!["größer".into(), String::new()],
        ];
        assert_eq!(
            table(&["name", "n"], rows),
            "name    n\na       1\ngrößer\n"
        );
    }
}
