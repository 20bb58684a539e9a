//! Edits of HTTP filters in the Envoy configurations of the repository, in every listener that has them.
//!
//! In `standalone.yaml` a header decides whether Envoy runs some of the filters, which puts them inside a matcher. This module
//! hides the matcher.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::document::Document;

pub(crate) const LISTENERS: &str = "static_resources/listeners";
pub(crate) const FILTERS: &str = "filter_chains/0/filters/0/typed_config/http_filters";
/// Path to a filter inside its matcher.
const MATCHED: &str = "typed_config/xds_matcher/on_no_match/action/typed_config/typed_config";

const REQUEST: &str = "isotherm.request";
const EXT_PROC: &str = "isotherm.ext_proc";
/// The name of the instance that [`add_response_role`] adds.
pub const RESPONSE: &str = "isotherm.response";

/// Sets a field of a filter: `path` is below its `typed_config`.
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
        document.set(&path, configuration.0.to_string())
    })
}

/// Shows clients the header `x-isotherm-decision` of requests that were decided on the decision stream. External processing
/// shows it by the service's configuration alone.
pub fn show_decisions(document: &mut Document) -> anyhow::Result<()> {
    edit_filter(document, REQUEST, |filter| {
        match filter.get("decision_stream") {
            Ok(_) => filter.set("decision_stream/decision", true),
            Err(_) => Ok(()),
        }
    })
}

/// Adds the role `response` behind external processing, which gets no headers of responses then, as the manifests of gateways
/// with an InferencePool do.
pub fn add_response_role(document: &mut Document) -> anyhow::Result<()> {
    for entry in entries(document, EXT_PROC)? {
        let (filters, _) = entry.rsplit_once('/').context("a path of a filter")?;
        let mut role = Document(document.get(&format!("{filters}/name={REQUEST}"))?.clone());
        role.set("name", RESPONSE)?;
        role.remove("disabled")?;
        role.set("typed_config/config/name", RESPONSE)?;
        let configuration = "typed_config/config/configuration/value";
        role.set(configuration, r#"{"role":"response"}"#)?;
        let filters = document.get_mut(filters)?.as_array_mut();
        let filters = filters.context("the filters are a list")?;
        let is_ext_proc = |filter: &Value| filter["name"] == EXT_PROC;
        let at = filters.iter().position(is_ext_proc).map_or(0, |at| at + 1);
        filters.insert(at, role.0);
    }
    let mode = "processing_mode/response_header_mode";
    set_in_filter(document, EXT_PROC, mode, &Value::from("SKIP"))
}

/// Makes Envoy run a filter for every request, whatever the headers are.
pub fn always_run_filter(document: &mut Document, name: &str) -> anyhow::Result<()> {
    for entry in entries(document, name)? {
        if let Ok(filter) = document.get(&format!("{entry}/{MATCHED}")) {
            let filter = filter.clone();
            *document.get_mut(&entry)? = filter;
        }
    }
    Ok(())
}

/// Calls `edit` with the path of each filter of this name, inside a matcher or not.
fn for_each_filter(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for entry in entries(document, name)? {
        let matched = format!("{entry}/{MATCHED}");
        let is_matched = document.get(&matched).is_ok();
        edit(document, if is_matched { &matched } else { &entry })?;
    }
    Ok(())
}

/// The path of each list entry of this name.
fn entries(document: &Document, name: &str) -> anyhow::Result<Vec<String>> {
    let listeners = document.get(LISTENERS)?.as_array();
    let entries: Vec<String> = (0..listeners.context("listeners are a list")?.len())
        .map(|listener| format!("{LISTENERS}/{listener}/{FILTERS}/name={name}"))
        .filter(|entry| document.get(entry).is_ok())
        .collect();
    ensure!(!entries.is_empty(), "no listener has a filter {name}");
    Ok(entries)
}
