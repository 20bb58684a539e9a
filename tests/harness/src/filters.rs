//! Edits of HTTP filters in the Envoy configurations of the repository, in every listener that has them.
//!
//! In `standalone.yaml` a header decides whether Envoy runs some of the filters, which puts them inside a matcher. Callers
//! of this module need not know.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::document::Document;

pub(crate) const LISTENERS: &str = "static_resources/listeners";
pub(crate) const FILTERS: &str = "filter_chains/0/filters/0/typed_config/http_filters";
/// Path to a filter inside its matcher.
const MATCHED: &str = "typed_config/xds_matcher/on_no_match/action/typed_config/typed_config";

const REQUEST: &str = "isotherm.request";
const RESPONSE: &str = "isotherm.response";

/// Sets a field of a filter: `path` is below its `typed_config`.
///
/// # Errors
/// When no listener has such a filter, or the path does not exist.
pub fn set_in_filter(
    document: &mut Document,
    filter: &str,
    path: &str,
    value: &Value,
) -> anyhow::Result<()> {
    for_each_filter(document, filter, |document, filter| {
        document.set(&format!("{filter}/typed_config/{path}"), value.clone())
    })
}

/// Edits the configuration of Isotherm's own filter, which is JSON text inside Envoy's configuration.
///
/// # Errors
/// When no listener has such a filter, or the edit fails.
pub fn edit_filter(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for_each_filter(document, name, |document, filter| {
        let path = format!("{filter}/typed_config/config/configuration/value");
        let text = document.get(&path)?.as_str();
        let mut configuration = Document::parse(text.context("the configuration is not text")?)?;
        edit(&mut configuration)?;
        document.set(&path, configuration.value().to_string())
    })
}

/// Shows clients the header `x-isotherm-decision`, on both paths by which Envoy gets decisions.
///
/// # Errors
/// When a listener lacks these filters.
pub fn show_decisions(document: &mut Document) -> anyhow::Result<()> {
    edit_filter(document, RESPONSE, |filter| filter.set("decision", true))?;
    edit_filter(document, REQUEST, |filter| {
        match filter.get("decision_stream") {
            Ok(_) => filter.set("decision_stream/decision", true),
            Err(_) => Ok(()),
        }
    })
}

/// Makes Envoy run a filter for every request, whatever the headers are.
///
/// # Errors
/// When no listener has such a filter.
pub fn always_run_filter(document: &mut Document, name: &str) -> anyhow::Result<()> {
    for_each_entry(document, name, |document, entry| {
        if let Ok(filter) = document.get(&format!("{entry}/{MATCHED}")) {
            let filter = filter.clone();
            *document.get_mut(entry)? = filter;
        }
        Ok(())
    })
}

/// Calls `edit` with the path of each filter of this name, inside a matcher or not.
fn for_each_filter(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for_each_entry(document, name, |document, entry| {
        let matched = format!("{entry}/{MATCHED}");
        let is_matched = document.get(&matched).is_ok();
        edit(document, if is_matched { &matched } else { entry })
    })
}

/// Calls `edit` with the path of each list entry of this name.
fn for_each_entry(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let listeners = document.get(LISTENERS)?.as_array();
    let count = listeners.context("listeners are a list")?.len();
    let mut edited = 0;
    for listener in 0..count {
        let entry = format!("{LISTENERS}/{listener}/{FILTERS}/name={name}");
        if document.get(&entry).is_ok() {
            edit(document, &entry)?;
            edited += 1;
        }
    }
    ensure!(edited > 0, "no listener has a filter {name}");
    Ok(())
}
