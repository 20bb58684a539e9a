//! Isotherm's filter in manifests: where it is configured, and how.

use isotherm_wasm_filter_core::PluginConfig;
use serde_json::Value;

use super::manifests::{Document, Manifests};
use super::walk;

/// The filter's message in Envoy's configuration.
const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

/// The filter's default of `buffer_bytes_max`.
const BUFFER_BYTES_MAX: u64 = 700 * 1024;

/// Envoy's limit of a connection's buffer where nothing sets it.
pub(super) const ENVOY_BUFFER_BYTES: u64 = 1024 * 1024;

/// An instance of the filter.
pub(super) struct FilterUse<'a> {
    pub(super) document: &'a Document,
    /// The plugin: `PluginConfig` of Envoy, or the entry of a gateway's own resource.
    pub(super) plugin: &'a Value,
    /// The filter's own configuration; `None` where there is none or it is no JSON.
    pub(super) configuration: Option<Value>,
}

impl FilterUse<'_> {
    /// Whether the instance reads prompts.
    pub(super) fn is_request(&self) -> bool {
        match self.own("role").and_then(Value::as_str) {
            Some(role) => !["response", "gate"].contains(&role),
            None => !PluginConfig::is_response_name(self.name()),
        }
    }

    /// Whether the instance reads prompts while it holds the request itself: no gate behind it does.
    pub(super) fn holds_headers(&self) -> bool {
        self.is_request() && self.own("gate").and_then(Value::as_bool) != Some(true)
    }

    /// The plugin's name or root id: without a role in the configuration, it says the role.
    pub(super) fn name(&self) -> &str {
        let names = ["name", "root_id", "rootID", "pluginName"];
        let mut names = names
            .into_iter()
            .filter_map(|name| walk::text(self.plugin, name));
        let first = names.clone().next().unwrap_or_default();
        names
            .find(|name| PluginConfig::is_response_name(name))
            .unwrap_or(first)
    }

    /// The most bytes that the instance holds. It stays below the limit that it knows.
    pub(super) fn held_bytes(&self) -> u64 {
        let bytes = |key| {
            self.own(key)
                .and_then(Value::as_u64)
                .filter(|bytes| *bytes > 0)
        };
        let held = bytes("buffer_bytes_max").unwrap_or(BUFFER_BYTES_MAX);
        let known = bytes("request_body_buffer_limit").unwrap_or(ENVOY_BUFFER_BYTES);
        held.min(known)
    }

    fn own(&self, key: &str) -> Option<&Value> {
        self.configuration.as_ref()?.get(key)
    }
}

/// The instances that a value of Envoy's configuration has.
pub(super) fn in_envoy<'a>(document: &'a Document, value: &'a Value) -> Vec<FilterUse<'a>> {
    let wasm = walk::objects(value)
        .into_iter()
        .filter(|object| walk::is_message(object, WASM));
    let plugins = wasm.filter_map(|object| {
        let message = object.get("value").unwrap_or(object); // a TypedStruct has its message inside
        message.get("config")
    });
    let uses = plugins.map(|plugin| {
        let own = plugin.get("configuration");
        let text = own.and_then(|own| own.get("value")).or(own);
        let configuration = match text {
            Some(Value::String(text)) => serde_json::from_str(text).ok(),
            other => other.cloned(),
        };
        FilterUse {
            document,
            plugin,
            configuration,
        }
    });
    uses.filter(|found| is_isotherm(found.plugin)).collect()
}

/// The instances that resources of a kind have: each entry of the list at `list`, or the value there.
pub(super) fn in_resources<'a>(
    manifests: &'a Manifests,
    kind: &'a str,
    path: &'a str,
    configuration: &'a str,
) -> impl Iterator<Item = FilterUse<'a>> {
    let entries = manifests.of_kind(kind).flat_map(move |document| {
        let entries = match walk::at(&document.root, path) {
            Some(Value::Array(entries)) => entries.as_slice(),
            Some(single) => std::slice::from_ref(single),
            None => &[],
        };
        entries.iter().map(move |plugin| (document, plugin))
    });
    entries
        .filter(|(_, plugin)| is_isotherm(plugin))
        .map(move |(document, plugin)| FilterUse {
            document,
            plugin,
            configuration: plugin.get(configuration).cloned(),
        })
}

/// Every instance, whatever configures it.
pub(super) fn all(manifests: &Manifests) -> Vec<FilterUse<'_>> {
    let documents = manifests.documents.iter();
    let in_envoy = documents.flat_map(|document| in_envoy(document, &document.root));
    let gateway = in_resources(manifests, "EnvoyExtensionPolicy", "spec.wasm", "config");
    let istio = in_resources(manifests, "WasmPlugin", "spec", "pluginConfig");
    in_envoy.chain(gateway).chain(istio).collect()
}

/// Whether a plugin is Isotherm's: a name, a root id or the source of the code says so.
fn is_isotherm(plugin: &Value) -> bool {
    plugin.to_string().to_ascii_lowercase().contains("isotherm")
}
