//! What Envoy knows of one request while it goes through the filter.

use std::collections::BTreeMap;

/// Header names and values, in the order of the wire.
pub type Headers = Vec<(String, Vec<u8>)>;

/// The host's side of one plugin instance and one request.
#[derive(Debug, Default)]
pub struct Host {
    /// The plugin's configuration.
    pub configuration: Vec<u8>,
    /// The request's headers, as the filter has left them.
    pub request_headers: Headers,
    /// The request's body, as far as it is held back.
    pub request_body: Vec<u8>,
    /// The response's headers, as the filter has left them.
    pub response_headers: Headers,
    /// The piece of the response's body that passes.
    pub response_body: Vec<u8>,
    /// The response's trailers, once it has any; `None` before its end, when nobody may add one.
    pub response_trailers: Option<Headers>,
    /// Properties by their path, the parts joined by dots.
    pub properties: BTreeMap<String, String>,
    /// The time of the host's clock, in nanoseconds.
    pub now_ns: u64,
    /// How many bytes of bodies the filter has asked for.
    pub body_bytes_read: usize,
    /// What the filter has logged.
    pub log: Vec<String>,
    /// Metrics in the order of their definition: a counter's value, or the sum of a histogram's.
    pub metrics: Vec<(String, u64)>,
}

impl Host {
    /// The value of a metric; 0 when it was never defined.
    #[must_use]
    pub fn metric(&self, name: &str) -> u64 {
        let found = self.metrics.iter().find(|(candidate, _)| candidate == name);
        found.map_or(0, |(_, value)| *value)
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
            7 => Some(&self.configuration),
            _ => None,
        }
    }
}
