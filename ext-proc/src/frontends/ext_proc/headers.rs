//! Reads the headers of a request from Envoy's messages.

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, Metadata};

use super::subset;
use crate::frontends::request::{ListenerKind, RequestHead};
use crate::metrics::Metrics;

/// Reads a request's headers, and the gateway's restriction to some replicas from the metadata.
pub(super) fn read(
    headers: Option<&HeaderMap>,
    metadata: Option<&Metadata>,
    listener: ListenerKind,
    metrics: &Metrics,
) -> RequestHead {
    let headers = headers.map_or(&[][..], |map| &map.headers);
    let headers = headers.iter().map(|header| (&*header.key, value(header)));
    let mut head = RequestHead::read(headers, listener, metrics);
    head.request.subset = metadata.and_then(subset::read);
    head
}

/// Returns the value of a header. Envoy writes one of two members, depending on its version.
pub(super) fn value(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() {
        header.value.as_bytes()
    } else {
        &header.raw_value
    }
}
