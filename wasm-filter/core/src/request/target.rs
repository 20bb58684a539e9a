//! The parts of a request that a decision stream and spans need besides the headers of the filter.

use std::ops::Range;

use isotherm_fingerprint::names;

use crate::RequestConfig;
use crate::headers::{self, Headers};
use crate::response::orca;

const CONTENT_LENGTH: &str = "content-length";

/// The headers of a request that a trusted peer sets. Its cluster, destination and decision mean nothing here.
pub(super) const SET_BY_PEER: [&str; 12] = [
    names::FINGERPRINT,
    names::MODEL,
    names::SESSION,
    names::TENANT,
    names::TIER,
    names::TTFT_MS,
    names::DEADLINE,
    names::TOKENS,
    names::STREAM,
    names::PREVIOUS_RESPONSE,
    names::ORIGIN,
    names::TRIED,
];

/// The place of the flags in `traceparent`: `VERSION-TRACE-PARENT-FLAGS`.
const TRACE_FLAGS: Range<usize> = 53..55;

/// The parts of a request that the service reads besides the headers of the filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestTarget {
    method: Vec<u8>,
    path: Vec<u8>,
    /// The name of the request in Envoy's logs, and the trace that it belongs to.
    request_id: Option<Vec<u8>>,
    traceparent: Option<Vec<u8>>,
    /// The length of the body: one that Envoy cannot send twice stays in its region.
    content_length: Option<Vec<u8>>,
    /// The headers of a trusted peer.
    of_peer: Vec<(&'static str, Vec<u8>)>,
    /// Whether the client asks for the engine's load report, and may have it.
    pub(crate) wants_report: bool,
}

impl RequestTarget {
    pub(crate) fn of(config: &RequestConfig, headers: &Headers) -> Self {
        let value = |name| headers::get(headers, name).unwrap_or_default().to_vec();
        Self {
            method: value(":method"),
            path: value(":path"),
            request_id: short(headers, names::REQUEST_ID),
            traceparent: short(headers, names::TRACEPARENT),
            content_length: short(headers, CONTENT_LENGTH),
            of_peer: match config.trusted_origin {
                true => of_peer(headers),
                false => Vec::new(),
            },
            wants_report: !config.hides_cache()
                && headers::get(headers, orca::FORMAT_HEADER).is_some(),
        }
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let request_id = self.request_id.as_deref();
        let traceparent = self.traceparent.as_deref();
        let content_length = self.content_length.as_deref();
        let of_peer = self.of_peer.iter().map(|(name, value)| (*name, &**value));
        let head = [(":method", &*self.method), (":path", &*self.path)];
        head.into_iter()
            .chain(content_length.map(|length| (CONTENT_LENGTH, length)))
            .chain(request_id.map(|id| (names::REQUEST_ID, id)))
            .chain(traceparent.map(|parent| (names::TRACEPARENT, parent)))
            .chain(of_peer)
    }

    /// Whether another region forwarded the request, or it came back from one.
    pub(crate) fn has_origin(&self) -> bool {
        let mut of_peer = self.of_peer.iter();
        of_peer.any(|(name, _)| [names::ORIGIN, names::TRIED].contains(name))
    }
}

fn of_peer(headers: &Headers) -> Vec<(&'static str, Vec<u8>)> {
    let value = |name| Some((name, headers::get(headers, name)?.to_vec()));
    SET_BY_PEER.into_iter().filter_map(value).collect()
}

/// A header that is passed on, unless it is longer than any request id should be.
fn short(headers: &Headers, name: &str) -> Option<Vec<u8>> {
    let value = headers::get(headers, name)?;
    (value.len() <= names::REQUEST_ID_BYTES_MAX).then(|| value.to_vec())
}

/// Whether the caller of a request traces it: the last flag of `traceparent` is set.
#[must_use]
pub fn is_traced(headers: &Headers) -> bool {
    let traceparent = headers::get(headers, names::TRACEPARENT);
    let flags = traceparent.and_then(|value| value.get(TRACE_FLAGS));
    let last = flags.and_then(<[u8]>::last).copied().map(char::from);
    last.and_then(|digit| digit.to_digit(16))
        .is_some_and(|digit| digit & 1 == 1)
}
