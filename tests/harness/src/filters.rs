//! The filters of the Envoy configurations of the tree, in every listener that has them.
//!
//! `standalone.yaml` has Envoy choose by a header whether it makes some of them; then the filter itself lies inside of its
//! matcher. Who changes a filter here need not know.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::document::Document;

pub(crate) const LISTENERS: &str = "static_resources/listeners";
pub(crate) const FILTERS: &str = "filter_chains/0/filters/0/typed_config/http_filters";
/// Where a filter is that Envoy makes unless a header says otherwise.
const CHOSEN: &str = "typed_config/xds_matcher/on_no_match/action/typed_config/typed_config";

const REQUEST: &str = "isotherm.request";
const RESPONSE: &str = "isotherm.response";

/// Changes a setting of a filter: `path` is below its `typed_config`.
///
/// # Errors
/// When no listener has such a filter, or the path leads nowhere.
pub fn set_in_filter(
    document: &mut Document,
    filter: &str,
    path: &str,
    value: &Value,
) -> anyhow::Result<()> {
    for_each(document, filter, |document, filter| {
        document.set(&format!("{filter}/typed_config/{path}"), value.clone())
    })
}

/// Changes the filter's own configuration, which is a JSON text inside of Envoy's.
///
/// # Errors
/// When no listener has such a filter, or the change fails.
pub fn edit_filter(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for_each(document, name, |document, filter| {
        let path = format!("{filter}/typed_config/config/configuration/value");
        let text = document
            .get(&path)?
            .as_str()
            .context("the filter's configuration is no text")?;
        let mut configuration = Document::parse(text)?;
        edit(&mut configuration)?;
        document.set(&path, configuration.value().to_string())
    })
}

/// Lets clients see `x-isotherm-decision`, whoever is asked about their requests.
///
/// # Errors
/// When a listener's filters are not what they were.
pub fn show_decisions(document: &mut Document) -> anyhow::Result<()> {
    edit_filter(document, RESPONSE, |filter| filter.set("decision", true))?;
    edit_filter(document, REQUEST, |filter| {
        match filter.get("decision_stream") {
            Ok(_) => filter.set("decision_stream/decision", true),
            Err(_) => Ok(()),
        }
    })
}

/// Has Envoy lead every request through a filter that it chooses by a header otherwise.
///
/// # Errors
/// When no listener has such a filter.
pub fn always_run_filter(document: &mut Document, name: &str) -> anyhow::Result<()> {
    for_each_place(document, name, |document, place| {
        if let Ok(filter) = document.get(&format!("{place}/{CHOSEN}")) {
            let filter = filter.clone();
            *document.get_mut(place)? = filter;
        }
        Ok(())
    })
}

fn for_each(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for_each_place(document, name, |document, place| {
        let chosen = format!("{place}/{CHOSEN}");
        let is_chosen = document.get(&chosen).is_ok();
        edit(document, if is_chosen { &chosen } else { place })
    })
}

fn for_each_place(
    document: &mut Document,
    name: &str,
    edit: impl Fn(&mut Document, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut edited = 0;
    for listener in listeners(document)? {
        let place = format!("{LISTENERS}/name={listener}/{FILTERS}/name={name}");
        if document.get(&place).is_ok() {
            edit(document, &place)?;
            edited += 1;
        }
    }
    ensure!(edited > 0, "no listener has a filter {name}");
    Ok(())
}

/// The names of the listeners.
fn listeners(document: &Document) -> anyhow::Result<Vec<String>> {
    let list = document
        .get(LISTENERS)?
        .as_array()
        .context("listeners are a list")?;
    let names = list
        .iter()
        .filter_map(|listener| listener.get("name")?.as_str());
    Ok(names.map(str::to_owned).collect())
}
