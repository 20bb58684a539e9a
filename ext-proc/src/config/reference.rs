//! The reference of every option, made from the declarations that also read the file.

use super::raw::RawConfig;
use super::value::Value;

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name with its section, such as `pools[].probe.interval_ms`.
    pub option: String,
    /// What it accepts, with its unit and range.
    pub accepts: String,
    /// What it is when it is absent.
    pub default: String,
    /// What it does.
    pub meaning: String,
}

/// Every option, in the order of the file.
#[must_use]
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    RawConfig::describe("", &mut rows);
    rows
}

/// The reference as a Markdown table.
#[must_use]
pub fn markdown() -> String {
    let mut table =
        String::from("| option | value | default | meaning |\n| --- | --- | --- | --- |\n");
    for row in rows() {
        let cells = [
            format!("`{}`", row.option),
            row.accepts,
            row.default,
            row.meaning,
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        table.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_says_what_it_accepts_and_what_it_does() {
        for row in rows() {
            assert!(
                !row.accepts.is_empty() && !row.meaning.is_empty(),
                "{row:?}"
            );
            assert!(row.meaning.ends_with(['.', ':']), "{row:?}");
        }
    }

    #[test]
    fn units_stand_last_in_names() {
        for row in rows() {
            let milliseconds = row.option.ends_with("_ms") || row.option.contains("_ms_");
            assert_eq!(
                milliseconds,
                row.accepts.starts_with("milliseconds"),
                "{row:?}"
            );
        }
    }
}
