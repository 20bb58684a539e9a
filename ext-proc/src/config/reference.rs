//! The reference of every option, made from the declarations that also parse the file.

use serde_json::{Value, json};

use super::kind::Section;
use super::options::RawConfig;

pub use super::kind::Row;

const INTRODUCTION: &str = "# Configuration of the service

`isotherm serve --config FILE` reads a YAML file. Every option may be left out; an empty file runs one pool for every
model. `isotherm check --config FILE` reports every mistake of a file with its line. `[]` stands for each entry of a
list. This page is generated from the service's own option declarations; `isotherm config-reference` prints it,
and `isotherm config-schema` prints a JSON Schema for editors.

| option | value | default | meaning |
| --- | --- | --- | --- |
";

/// Returns every option, in the order of the file.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    RawConfig::describe("", &mut rows);
    rows
}

/// Returns the reference as a Markdown page: `docs/configuration.md`.
pub fn markdown() -> String {
    let mut page = INTRODUCTION.to_owned();
    for row in rows() {
        let option = format!("`{}`", row.option);
        let cells = [option, row.accepts, row.default, row.meaning];
        let cells = cells.map(|cell| cell.replace('|', "\\|"));
        page.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    page
}

/// Returns the JSON Schema of the file, in draft 2020-12.
pub fn json_schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of the Isotherm service",
    });
    if let (Some(members), Value::Object(section)) = (schema.as_object_mut(), RawConfig::schema()) {
        members.extend(section);
        // An empty file is a configuration.
        members.insert("type".to_owned(), json!(["object", "null"]));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::assert_generated;

    #[test]
    fn the_configuration_reference_is_generated_from_the_options() {
        assert_generated("docs/configuration.md", &markdown());
    }

    #[test]
    fn every_option_has_its_values_and_its_meaning() {
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
