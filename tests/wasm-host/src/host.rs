//! The state of the host: one plugin instance and one request.

use std::collections::BTreeMap;

/// Header names and values, in the order of the wire.
pub type Headers = Vec<(String, Vec<u8>)>;

/// Headers from text.
pub fn headers(pairs: &[(&str, &str)]) -> Headers {
    let header = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
    pairs.iter().map(header).collect()
}

/// The id of the plugin's root context.
pub(crate) const ROOT: u32 = 1;

/// The host's side of one plugin instance and one request.
#[derive(Debug, Default)]
pub struct Host {
    /// The plugin's configuration.
    pub configuration: Vec<u8>,
    /// The id of the request's context.
    pub(crate) request: u32,
    /// The request's headers, as the filter has left them.
    pub request_headers: Headers,
    /// The request's body, as far as it is held back.
    pub request_body: Vec<u8>,
    /// The response's headers, as the filter has left them.
    pub response_headers: Headers,
    /// The piece of the response's body that passes.
    pub response_body: Vec<u8>,
    /// The response's trailers; `None` before the end of the response, when the filter must not add one.
    pub response_trailers: Option<Headers>,
    /// Properties by their path, the parts joined by dots.
    pub properties: BTreeMap<String, String>,
    /// The state of the request that the filter has set, by name, without the `wasm.` that Envoy puts before it.
    pub filter_state: BTreeMap<String, String>,
    /// The time of the host's clock, in nanoseconds.
    pub now_ns: u64,
    /// Nanoseconds by which the host's wall clock is ahead.
    pub wall_step_ns: u64,
    /// The bytes of bodies that the filter has read.
    pub body_bytes_read: usize,
    /// The context that a callback is for.
    pub(crate) current: u32,
    /// The context in whose place the filter acts, if it has said so in this callback.
    pub(crate) effective: Option<u32>,
    /// The streams that the filter has opened, as `cluster/service/method`; their numbers are their places here.
    pub streams: Vec<String>,
    /// The messages that the filter has sent on its streams.
    pub sent: Vec<Vec<u8>>,
    /// The message that has come on one.
    pub stream_message: Vec<u8>,
    /// The number of times that the filter has resumed the request.
    pub resumed: usize,
    /// The status and body of the filter's own response.
    pub replied: Option<(u32, Vec<u8>)>,
    /// The period of the filter's timer in milliseconds; 0 when it is off.
    pub tick_ms: u32,
    /// The log lines of the filter.
    pub log: Vec<String>,
    /// Metrics in the order of their definition: a counter's value, or the sum of a histogram's.
    pub metrics: Vec<(String, u64)>,
}

impl Host {
    /// The value of a metric; 0 when it was never defined.
    pub fn metric(&self, name: &str) -> u64 {
        let found = self.metrics.iter().find(|(candidate, _)| candidate == name);
        found.map_or(0, |(_, value)| *value)
    }

    /// The text of a request header, as the filter has left it.
    pub fn request_header(&self, name: &str) -> Option<&str> {
        let header = self
            .request_headers
            .iter()
            .find(|(candidate, _)| candidate == name);
        std::str::from_utf8(&header?.1).ok()
    }

    /// The context that the filter acts as.
    pub(crate) fn context(&self) -> u32 {
        self.effective.unwrap_or(self.current)
    }

    /// The map that the ABI gives this number; `None` when the host has none to give now.
    pub(crate) fn map(&mut self, number: u32) -> Option<&mut Headers> {
        match number {
            0 => Some(&mut self.request_headers),
            2 => Some(&mut self.response_headers),
            3 => self.response_trailers.as_mut(),
            _ => None,
        }
    }

    /// The buffer that the ABI gives this number.
    pub(crate) fn buffer(&self, number: u32) -> Option<&[u8]> {
        match number {
            0 => Some(&self.request_body),
            1 => Some(&self.response_body),
            5 => Some(&self.stream_message),
            7 => Some(&self.configuration),
            _ => None,
        }
    }
}
