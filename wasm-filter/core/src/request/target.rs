//! The parts of a request that a decision stream and spans need besides the headers of the filter.

use std::ops::Range;

use isotherm_fingerprint::names;

use crate::RequestConfig;
use crate::headers::{self, Headers};
use crate::response::orca;

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
            wants_report: !config.hides_cache()
                && headers::get(headers, orca::FORMAT_HEADER).is_some(),
        }
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let request_id = self.request_id.as_deref();
        let traceparent = self.traceparent.as_deref();
        let head = [(":method", &*self.method), (":path", &*self.path)];
        head.into_iter()
            .chain(request_id.map(|id| (names::REQUEST_ID, id)))
            .chain(traceparent.map(|parent| (names::TRACEPARENT, parent)))
    }
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
