//! Hazards of Envoy's own configuration: bootstraps, configuration dumps, and the patches of Istio's EnvoyFilter.

use isotherm_wasm_filter_core::PluginConfig;
use serde_json::Value;

use super::filter::{self, ENVOY_BUFFER_BYTES};
use super::manifests::{Document, Manifests};
use super::rule::{Occurrence, Rule};
use super::walk;

const EXT_PROC: &str = "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";

/// The service's default of `queue.wait_ms_max`.
pub(super) const QUEUE_WAIT_MS: f64 = 30_000.0;

/// Envoy's default of `message_timeout`, and Envoy Gateway's.
pub(super) const MESSAGE_TIMEOUT_MS: f64 = 200.0;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "filter-configuration",
        hazard: "the filter refuses its configuration: ",
        remedy: "correct it; docs/filter-configuration.md lists the keys",
        find: filter_configuration,
    },
    Rule {
        name: "headers-not-held",
        hazard: "the filter has no `allow_on_headers_stop_iteration: true`: Envoy withholds the body of a request that the \
                 filter holds, and decisions rest on the headers",
        remedy: "set it beside `configuration` in the plugin's `config`",
        find: headers_not_held,
    },
    Rule {
        name: "filter-behind-ext-proc",
        hazard: "the filter stands behind external processing: the service decides before the prompt is read",
        remedy: "put the filter's request role in front of ext_proc",
        find: filter_behind_ext_proc,
    },
    Rule {
        name: "buffer-below-filter",
        hazard: "Envoy answers 413 to a body that the filter still holds: ",
        remedy: "set `request_body_buffer_limit` of the virtual host at least 1 MiB above the filter's `buffer_bytes_max`, or \
                 lower the latter",
        find: buffer_below_filter,
    },
    Rule {
        name: "duplex-without-trailers",
        hazard: "FULL_DUPLEX_STREAMED needs trailers: Envoy refuses the mode, or loses them, without ",
        remedy: "set that mode to SEND",
        find: duplex_without_trailers,
    },
    Rule {
        name: "timer-below-queue",
        hazard: "ext_proc gives up on a request that the service queues: ",
        remedy: "set `max_message_timeout` above the service's `queue.wait_ms_max`",
        find: timer_below_queue,
    },
];

fn filter_configuration(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let uses = filter::all(manifests).into_iter();
    let mistakes = uses.filter_map(|found| {
        let own = found
            .configuration
            .clone()
            .unwrap_or(Value::Null)
            .to_string();
        let error = PluginConfig::parse_named(own.as_bytes(), found.name()).err()?;
        Some(Occurrence::new(found.document, error.to_string()))
    });
    mistakes.collect()
}

fn headers_not_held(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let documents = manifests.documents.iter();
    let uses = documents.flat_map(|document| filter::in_envoy(document, &document.root));
    let missing = uses.filter(|found| {
        let flag = walk::field(found.plugin, "allow_on_headers_stop_iteration");
        found.holds_headers() && flag.and_then(Value::as_bool) != Some(true)
    });
    missing.map(|found| found.document.into()).collect()
}

fn filter_behind_ext_proc(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let documents = manifests.documents.iter();
    let behind = documents.filter(|document| {
        let objects = walk::objects(&document.root).into_iter();
        let mut chains =
            objects.filter_map(|object| walk::field(object, "http_filters")?.as_array());
        chains.any(|filters| is_behind(document, filters))
    });
    behind.map(Occurrence::from).collect()
}

/// Whether the request role comes after external processing. AI Gateway's own processor, which reads the model's name, may
/// come first.
fn is_behind(document: &Document, filters: &[Value]) -> bool {
    let asks_picker = |entry: &Value| {
        let name = walk::text(entry, "name").unwrap_or_default();
        let mut objects = walk::objects(entry).into_iter();
        !name.contains("aigateway") && objects.any(|object| walk::is_message(object, EXT_PROC))
    };
    let reads_prompt = |entry: &Value| {
        let uses = filter::in_envoy(document, entry);
        uses.iter().any(filter::FilterUse::is_request)
    };
    let asked = filters.iter().position(asks_picker);
    let read = filters.iter().position(reads_prompt);
    asked.zip(read).is_some_and(|(asked, read)| asked < read)
}

fn buffer_below_filter(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let is_gateway_resource = |document: &&Document| document.kind() == "EnvoyFilter";
    let documents = manifests.documents.iter();
    let mut occurrences = Vec::new();
    for document in documents.filter(|document| !is_gateway_resource(document)) {
        let uses = filter::in_envoy(document, &document.root);
        let held = uses
            .iter()
            .filter(|found| found.is_request())
            .map(filter::FilterUse::held_bytes);
        let limit = buffer_limit(&document.root).unwrap_or(ENVOY_BUFFER_BYTES);
        if let Some(held) = held.max().filter(|held| *held > limit) {
            let detail = format!("the filter holds {held} bytes, and the limit is {limit}");
            occurrences.push(Occurrence::new(document, detail));
        }
    }
    occurrences
}

/// The limit of a request's buffer: the routes' own, else the listeners'.
pub(super) fn buffer_limit(value: &Value) -> Option<u64> {
    let objects = walk::objects(value);
    let limits = |name| {
        let given = objects
            .iter()
            .filter_map(move |object| walk::field(object, name));
        given.filter_map(walk::number)
    };
    let of_listener = |object: &&&Value| walk::field(object, "filter_chains").is_some();
    let listeners = objects.iter().filter(of_listener);
    let listeners = listeners.filter_map(|object| {
        walk::number(walk::field(object, "per_connection_buffer_limit_bytes")?)
    });
    limits("request_body_buffer_limit")
        .min()
        .or_else(|| listeners.min())
}

fn duplex_without_trailers(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let mut occurrences = Vec::new();
    for document in &manifests.documents {
        for object in walk::objects(&document.root) {
            for (body, trailers) in [
                ("request_body_mode", "request_trailer_mode"),
                ("response_body_mode", "response_trailer_mode"),
            ] {
                let is_sent = walk::field(object, trailers).is_some_and(|mode| is(mode, "SEND", 1));
                let is_duplex = walk::field(object, body).is_some_and(is_duplex);
                if is_duplex && !is_sent {
                    let detail = format!("`{trailers}`");
                    occurrences.push(Occurrence::new(document, detail));
                }
            }
        }
    }
    occurrences
}

fn is_duplex(mode: &Value) -> bool {
    is(mode, "FULL_DUPLEX_STREAMED", 4)
}

/// Whether a value of an enumeration is this one, by name or by number.
fn is(value: &Value, name: &str, number: u64) -> bool {
    value.as_str() == Some(name) || value.as_u64() == Some(number)
}

fn timer_below_queue(manifests: &Manifests) -> Vec<Occurrence<'_>> {
    let mut occurrences = Vec::new();
    for document in &manifests.documents {
        let objects = walk::objects(&document.root).into_iter();
        let processors = objects.filter(|object| walk::is_message(object, EXT_PROC));
        for processor in processors.filter(|processor| is_asked_by_headers(processor)) {
            let millis = |name| walk::millis(walk::field(processor, name)?.as_str()?);
            let timer = millis("message_timeout").unwrap_or(MESSAGE_TIMEOUT_MS);
            let longest = timer.max(millis("max_message_timeout").unwrap_or_default());
            if longest < QUEUE_WAIT_MS {
                let detail = format!(
                    "it waits {longest} ms at most, the queue {QUEUE_WAIT_MS} ms by default"
                );
                occurrences.push(Occurrence::new(document, detail));
            }
        }
    }
    occurrences
}

/// Whether a processor is Isotherm's, and its answer to the headers is under the timer: not in FULL_DUPLEX_STREAMED.
fn is_asked_by_headers(processor: &Value) -> bool {
    let mode = walk::field(processor, "processing_mode");
    let has_timer = mode.is_none_or(|mode| {
        !walk::field(mode, "request_body_mode").is_some_and(is_duplex)
            && !walk::field(mode, "request_header_mode").is_some_and(|mode| is(mode, "SKIP", 2))
    });
    has_timer && processor.to_string().contains("isotherm")
}
