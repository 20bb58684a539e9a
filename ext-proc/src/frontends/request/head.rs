//! What a request's headers say, as far as this service wants to know it.
//!
//! The filter wrote the `x-isotherm-*` headers after it had removed whatever the client had put under these names. A
//! header that cannot be read all the same (another version of the filter, a bug) counts as absent, and is counted:
//! a request is never refused for it.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, Metadata};
use isotherm_fingerprint::{Fingerprint, names, tokens};
use isotherm_router::Tier;

use super::super::ext_proc::subset;
use super::origin::{Listener, Origin};
use super::reply::RequestHeaders;
use crate::metrics::Metrics;
use crate::pool::{PeerTable, RouteRequest, session_key};

/// What a request's headers say.
#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    /// The HTTP method.
    pub(crate) method: String,
    /// The path, with its query.
    pub(crate) path: String,
    /// The model that it names.
    pub(crate) model: Option<String>,
    /// The Envoy cluster that the filter chose for it.
    pub(crate) cluster: Option<String>,
    /// Where it comes from, as far as that is believed.
    pub(crate) origin: Origin,
    /// The filter has its decision already, from its decision stream.
    pub(crate) is_decided: bool,
    /// What the answer takes away again.
    pub(crate) headers: RequestHeaders,
    /// What the routing core wants to know; its scope is left to who knows the regions.
    pub(crate) ask: RouteRequest,
}

impl RequestHead {
    /// Reads the headers, and the gateway's restriction to some replicas from the metadata.
    pub(crate) fn read(
        headers: Option<&HeaderMap>,
        metadata: Option<&Metadata>,
        listener: Listener,
        metrics: &Metrics,
    ) -> Self {
        let headers = headers.map_or(&[][..], |map| &map.headers);
        let headers = headers.iter().map(|header| (&*header.key, bytes(header)));
        let mut head = Self::of(headers, listener, metrics);
        head.ask.subset = metadata.and_then(subset::read);
        head
    }

    /// Reads headers.
    pub(crate) fn of<'a>(
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        listener: Listener,
        metrics: &Metrics,
    ) -> Self {
        let mut head = Self::default();
        for (name, value) in headers {
            head.headers.note(name, value);
            if head.take(name, value, listener).is_none() {
                metrics.count_bad_header(known_name(name));
            }
        }
        head
    }

    /// What the routing core wants to know, with where the request may go.
    pub(crate) fn ask(&self, peer_table: Option<&PeerTable>) -> RouteRequest {
        RouteRequest {
            scope: self.origin.scope(peer_table, self.ask.subset.is_some()),
            ..self.ask.clone()
        }
    }

    /// `None` when the header is one of ours, and cannot be read or must not be believed.
    fn take(&mut self, name: &str, value: &[u8], listener: Listener) -> Option<()> {
        match name {
            names::ORIGIN | names::TRIED if listener == Listener::Clients => return None,
            names::ORIGIN => self.origin.region = Some(text(value)?),
            names::TRIED => self.origin.tried = Some(text(value)?),
            // A client's own mistake, which is for Envoy to refuse.
            "content-length" => self.origin.body_bytes = text(value).and_then(|n| n.parse().ok()),
            ":method" => self.method = text(value)?,
            ":path" => self.path = text(value)?,
            names::MODEL => self.model = Some(percent_decoded(value)?),
            names::CLUSTER => self.cluster = Some(text(value)?),
            names::SESSION => self.ask.session = Some(session_key(value)),
            names::TIER => self.ask.tier = tier(value)?,
            names::TOKENS => {
                let tokens = tokens::parse(value)?;
                self.ask.prompt_tokens = tokens.prompt;
                self.ask.output_tokens_max = tokens.output_max;
            }
            names::DECIDED => self.is_decided = true,
            names::FINGERPRINT => {
                self.ask.fingerprint = Arc::new(Fingerprint::decode(value).ok()?);
            }
            _ => {}
        }
        Some(())
    }
}

/// Envoy writes either of the two members, by its version.
pub(crate) fn bytes(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() {
        header.value.as_bytes()
    } else {
        &header.raw_value
    }
}

/// The constant for a name, so that what clients send can never become a metric's label.
fn known_name(name: &str) -> &'static str {
    [
        names::MODEL,
        names::CLUSTER,
        names::TIER,
        names::TOKENS,
        names::FINGERPRINT,
        names::ORIGIN,
        names::TRIED,
    ]
    .into_iter()
    .find(|known| *known == name)
    .unwrap_or("other")
}

fn text(value: &[u8]) -> Option<String> {
    std::str::from_utf8(value).ok().map(str::to_owned)
}

fn tier(value: &[u8]) -> Option<Tier> {
    match value {
        b"interactive-fast" => Some(Tier::InteractiveFast),
        b"interactive-normal" => Some(Tier::InteractiveNormal),
        b"non-interactive" => Some(Tier::NonInteractive),
        _ => None,
    }
}

/// The text that the filter (or a client, in a path) wrote with `%XX` for what headers and paths cannot hold.
pub(crate) fn percent_decoded(value: &[u8]) -> Option<String> {
    let mut decoded = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            decoded.push(first);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        decoded.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn read(headers: &[(&str, &str)]) -> (RequestHead, String) {
        read_on(Listener::Clients, headers)
    }

    fn read_on(listener: Listener, headers: &[(&str, &str)]) -> (RequestHead, String) {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let map = HeaderMap {
            headers: headers
                .iter()
                .map(|(key, value)| HeaderValue {
                    key: (*key).into(),
                    raw_value: value.as_bytes().into(),
                    ..HeaderValue::default()
                })
                .collect(),
        };
        let head = RequestHead::read(Some(&map), None, listener, &metrics);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        (head, page)
    }

    #[test]
    fn the_filters_headers_are_read() {
        let (head, _) = read(&[
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            (names::MODEL, "meta/llama%203"),
            (names::TIER, "non-interactive"),
            (names::TOKENS, "120;30"),
            (names::SESSION, "u-1"),
        ]);
        assert_eq!(head.model.as_deref(), Some("meta/llama 3"));
        assert_eq!(head.ask.tier, Tier::NonInteractive);
        assert_eq!(head.ask.prompt_tokens, 120);
        assert_eq!(head.ask.output_tokens_max, Some(30));
        assert_eq!(head.ask.session, Some(session_key(b"u-1")));
    }

    #[test]
    fn a_header_that_cannot_be_read_counts_as_absent_and_is_counted() {
        let (head, page) = read(&[
            (names::TOKENS, "many"),
            (names::FINGERPRINT, "!"),
            (names::MODEL, "%zz"),
        ]);
        assert_eq!(head.ask.prompt_tokens, 0);
        assert_eq!(head.model, None);
        for name in [names::TOKENS, names::FINGERPRINT, names::MODEL] {
            let line = format!("bad_headers_total{{header=\"{name}\"}} 1");
            assert!(page.contains(&line), "{page}");
        }
    }

    #[test]
    fn an_origin_is_believed_only_where_no_client_can_write_it() {
        let headers = [
            (names::ORIGIN, "eu"),
            (names::TRIED, "us"),
            ("content-length", "17"),
        ];
        let (head, page) = read(&headers);
        assert_eq!((head.origin.region, head.origin.tried), (None, None));
        assert_eq!(head.origin.body_bytes, Some(17));
        for name in [names::ORIGIN, names::TRIED] {
            let line = format!("bad_headers_total{{header=\"{name}\"}} 1");
            assert!(page.contains(&line), "{page}");
        }
        let (head, page) = read_on(Listener::Regions, &headers);
        assert_eq!(head.origin.region.as_deref(), Some("eu"));
        assert_eq!(head.origin.tried.as_deref(), Some("us"));
        assert!(!page.contains("bad_headers_total{"), "{page}");
    }
}
