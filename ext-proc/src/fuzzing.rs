//! The parsers of foreign bytes, as the fuzz targets in `tests/fuzz` call them. No other code uses this module.

use std::sync::LazyLock;

use bytes::Bytes;
use isotherm_decision_proto::ClientMessage;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{EngineCounters, Load};
use prometheus_client::registry::Registry;
use prost::Message as _;

use crate::config::Engine;
use crate::frontends::request::{ListenerKind, RequestHead};
use crate::metrics::Metrics;
use crate::peering::{Message, MessageError, decode, encode};
use crate::probe::{parse_model_list, parse_page};

static METRICS: LazyLock<Metrics> = LazyLock::new(|| Metrics::register(&mut Registry::default()));

/// Parses a metrics page as the page of each engine; returns the reports of the engines that it may be of.
#[must_use]
pub fn parse_metrics_page(page: &[u8]) -> Vec<(Load, Option<EngineCounters>)> {
    let engines = Engine::ALL.iter();
    let reports = engines.filter_map(|engine| parse_page(*engine, page).ok());
    let reports = reports.map(|report| (report.load, report.counters));
    reports.collect()
}

/// Parses a replica's list of models; returns the names of the adapters.
#[must_use]
pub fn parse_models_page(page: &[u8]) -> Option<Vec<String>> {
    parse_model_list(page).map(|listed| listed.adapters)
}

/// Decodes a message of a peer, and encodes it again.
#[must_use]
pub fn decode_peer_message(bytes: &[u8]) -> Option<(Message, Result<Bytes, MessageError>)> {
    let message = decode(bytes).ok()??;
    let encoded = encode(&message);
    Some((message, encoded))
}

/// Reads a message of a filter as the service does: the headers of its requests, the outcomes of its ends. Returns the number
/// of both.
#[must_use]
pub fn read_decision_message(bytes: &[u8]) -> Option<(usize, usize)> {
    let message = ClientMessage::decode(bytes).ok()?;
    for request in &message.requests {
        let headers = request.headers.iter();
        let headers = headers.map(|header| (&*header.name, &*header.value));
        let _ = RequestHead::read(headers, ListenerKind::Clients, &METRICS);
    }
    for end in &message.ends {
        let _ = Outcome::parse(&end.outcome);
    }
    Some((message.requests.len(), message.ends.len()))
}

/// Reads the body of a request to the admin interface as each of the requests that have one.
pub fn read_admin_body(body: &[u8]) {
    crate::admin::read_body(body);
}
