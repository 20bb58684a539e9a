//! Reads the headers of a request.
//!
//! The filter removes `x-isotherm-*` headers of the client before it writes its own. A malformed one (from another version
//! of the filter, or by a bug) is ignored and counted; the service never rejects a request for it.

use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::paths::PathUse;
use isotherm_fingerprint::{
    Api, Fingerprint, UnreadModel, names, objectives, stored_response, tenant, tokens,
};
use isotherm_router::ResponseKey;
use isotherm_wasm_filter_core::HeaderEdit;
use percent_encoding::percent_decode;

use super::origin::{ListenerKind, Origin};
use super::reply::RequestHeaders;
use crate::metrics::{Metrics, PromptRead};
use crate::pool::{PeerTable, Pool, PoolTable, RouteRequest, response_key, session_key};
use crate::tier;

#[derive(Debug, Default)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) model: Option<String>,
    /// Stored response that the path names.
    pub(crate) response_in_path: Option<ResponseKey>,
    /// Reason why the model of the request cannot be told.
    pub(crate) unread_model: Option<UnreadModel>,
    /// Name of the request in Envoy's logs.
    pub(crate) request_id: Option<Box<str>>,
    /// Trace that the request belongs to.
    pub(crate) traceparent: Option<Box<str>>,
    /// Time for which the filter held the request, if its caller traces it.
    pub(crate) held: Option<Duration>,
    /// Trusted headers about regions.
    pub(crate) origin: Origin,
    /// Whether the request came with a fingerprint.
    pub(crate) has_fingerprint: bool,
    /// Whether the prompt goes on behind what the filter read.
    pub(crate) is_partial: bool,
    /// Whether the gateway sends no request without an endpoint (endpoint picker protocol).
    pub(crate) needs_endpoint: bool,
    /// Whether the filter, or its code in this service, has read the request.
    pub(crate) is_filtered: bool,
    /// Whether the filter got a decision on its decision stream already.
    pub(crate) is_decided: bool,
    /// Headers that the reply depends on.
    pub(crate) headers: RequestHeaders,
    /// Request for the pool, without its scope.
    pub(crate) request: RouteRequest,
}

impl RequestHead {
    pub(crate) fn read<'a>(
        headers: impl Iterator<Item = (&'a str, &'a [u8])>,
        listener: ListenerKind,
        metrics: &Metrics,
    ) -> Self {
        let mut head = Self::default();
        for (name, value) in headers {
            head.headers.note(name);
            head.is_filtered |= name.starts_with(names::PREFIX);
            if head.take(name, value, listener).is_none() {
                metrics.count_bad_header(known_name(name));
            }
        }
        head
    }

    /// Whether no filter has read the request, at a gateway that sends it on without a decision.
    pub(crate) fn is_unread(&self) -> bool {
        !self.is_filtered && !self.needs_endpoint
    }

    /// Returns the part of the prompt that the filter read; `None` for a request without a prompt.
    pub(crate) fn prompt_read(&self) -> Option<PromptRead> {
        self.request.api?;
        Some(match (self.has_fingerprint, self.is_partial) {
            (true, false) => PromptRead::Whole,
            (true, true) => PromptRead::Partial,
            (false, _) => PromptRead::None,
        })
    }

    /// Returns how the service uses the path of the request. A gateway that sends no request without an endpoint has chosen the pool's
    /// requests by its own routes.
    pub(crate) fn path_use(&self, table: &PoolTable) -> PathUse {
        match table.path_use(&self.path, &self.method) {
            PathUse::Pass if self.needs_endpoint => PathUse::Serve,
            other => other,
        }
    }

    /// Returns the request for a pool, with its adapter and its scope.
    pub(crate) fn route_request(
        &self,
        pool: &Pool,
        peer_table: Option<&PeerTable>,
    ) -> RouteRequest {
        // Only Isotherm's own Envoy configuration has routes to other regions.
        let must_stay = self.request.subset.is_some() || self.needs_endpoint;
        let model = self.model.as_deref();
        RouteRequest {
            adapter: model.and_then(|model| pool.adapter_key(model)),
            scope: self.origin.scope(peer_table, must_stay),
            ..self.request.clone()
        }
    }

    /// Takes the headers in that the filter's code sets after it has read a body.
    pub(crate) fn apply(&mut self, edits: &[HeaderEdit], metrics: &Metrics) {
        self.is_filtered = true;
        // A filter that the body was withheld from knew less.
        self.unread_model = None;
        self.take_edits(edits, metrics);
    }

    /// Takes headers in that the filter's code sets.
    pub(crate) fn take_edits(&mut self, edits: &[HeaderEdit], metrics: &Metrics) {
        for edit in edits {
            if let (name, Some(value)) = edit.parts()
                && self.take(name, value, ListenerKind::Clients).is_none()
            {
                metrics.count_bad_header(known_name(name));
            }
        }
    }

    /// Takes a header in; `None` when an Isotherm header is malformed or not trusted.
    fn take(&mut self, name: &str, value: &[u8], listener: ListenerKind) -> Option<()> {
        match name {
            names::ORIGIN | names::TRIED if listener == ListenerKind::Clients => return None,
            names::ORIGIN => self.origin.region = Some(text(value)?),
            names::TRIED => self.origin.tried = Some(text(value)?),
            // Envoy rejects a malformed length itself.
            "content-length" => self.origin.body_bytes = text(value).and_then(|n| n.parse().ok()),
            ":method" => self.method = text(value)?,
            ":path" => {
                self.path = text(value)?;
                self.request.api = Api::from_path(&self.path);
                self.response_in_path = stored_response::id_in_path(&self.path).map(response_key);
            }
            // The client may choose it, so it must be harmless in a log.
            names::REQUEST_ID => self.request_id = harmless(value),
            names::TRACEPARENT => self.traceparent = harmless(value),
            names::HELD => self.held = Some(Duration::from_micros(text(value)?.parse().ok()?)),
            names::MODEL => self.model = Some(percent_decoded(value)?),
            names::UNREAD_MODEL => self.unread_model = Some(UnreadModel::parse(value)?),
            names::CLUSTER => self.headers.cluster = Some(text(value)?),
            names::SESSION => self.request.session = Some(session_key(value)),
            names::TENANT => self.request.tenant = Some(tenant_name(value)?),
            names::TIER => self.request.tier = tier::parse(value)?,
            names::TTFT_MS => {
                self.request.ttft_slo = Some(millis(objectives::parse_ttft_ms(value)?));
            }
            names::DEADLINE => {
                self.request.time_left = Some(millis(objectives::parse_deadline_ms(value)?));
            }
            names::TOKENS => {
                let tokens = tokens::parse(value)?;
                self.request.prompt_tokens = tokens.prompt;
                self.is_partial = tokens.is_partial;
                self.request.output_tokens_max = tokens.output_max;
            }
            names::PREVIOUS_RESPONSE => {
                let id = str::from_utf8(value).ok();
                let id = id.filter(|id| stored_response::is_id(id.as_bytes()))?;
                self.request.previous_response = Some(response_key(id));
            }
            names::STREAM => self.request.wants_stream = value == b"1",
            names::DECIDED => self.is_decided = true,
            names::FINGERPRINT => {
                self.request.fingerprint = Arc::new(Fingerprint::decode(value).ok()?);
                self.has_fingerprint = true;
            }
            _ => {}
        }
        Some(())
    }
}

/// Returns a constant for a name, so that no client can add labels to a metric.
fn known_name(name: &str) -> &'static str {
    [
        names::MODEL,
        names::UNREAD_MODEL,
        names::CLUSTER,
        names::HELD,
        names::TENANT,
        names::TIER,
        names::TTFT_MS,
        names::DEADLINE,
        names::TOKENS,
        names::PREVIOUS_RESPONSE,
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

fn harmless(value: &[u8]) -> Option<Box<str>> {
    let is_harmless = value.iter().all(u8::is_ascii_graphic)
        && (1..=names::REQUEST_ID_BYTES_MAX).contains(&value.len());
    let id = std::str::from_utf8(value).ok().filter(|_| is_harmless);
    id.map(Into::into)
}

fn tenant_name(value: &[u8]) -> Option<Arc<str>> {
    let name = std::str::from_utf8(value).ok();
    name.filter(|_| tenant::is_valid(value)).map(Into::into)
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}

/// Decodes `%XX`, with which the filter (or a client, in a path) writes what headers and paths cannot hold. A malformed
/// escape makes the text malformed.
pub(super) fn percent_decoded(value: &[u8]) -> Option<String> {
    let mut escapes = value.split(|byte| *byte == b'%').skip(1);
    let is_escape = |digits: &[u8]| {
        let digits = digits.get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let text = percent_decode(value).decode_utf8().ok()?;
    escapes.all(is_escape).then(|| text.into_owned())
}

#[cfg(test)]
mod tests {
    use isotherm_router::Tier;
    use prometheus_client::registry::Registry;

    use super::*;

    fn read(headers: &[(&str, &str)]) -> (RequestHead, String) {
        read_on(ListenerKind::Clients, headers)
    }

    fn read_on(listener: ListenerKind, headers: &[(&str, &str)]) -> (RequestHead, String) {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let head = RequestHead::read(headers, listener, &metrics);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        (head, page)
    }

    #[test]
    fn the_headers_of_the_filter_are_read() {
        let (head, _) = read(&[
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            (names::MODEL, "meta/llama%203"),
            (names::TIER, "non-interactive"),
            (names::TTFT_MS, "800"),
            (names::DEADLINE, "60000"),
            (names::TOKENS, "120;30"),
            (names::STREAM, "1"),
            (names::SESSION, "u-1"),
            (names::TENANT, "team-a"),
        ]);
        assert_eq!(head.request.tenant.as_deref(), Some("team-a"));
        assert_eq!(head.model.as_deref(), Some("meta/llama 3"));
        assert_eq!(head.request.tier, Tier::NonInteractive);
        assert_eq!(head.request.ttft_slo, Some(Duration::from_millis(800)));
        assert_eq!(head.request.time_left, Some(Duration::from_mins(1)));
        assert_eq!(head.request.prompt_tokens, 120);
        assert_eq!(head.request.output_tokens_max, Some(30));
        assert!(head.request.wants_stream);
        assert_eq!(head.request.session, Some(session_key(b"u-1")));
    }

    #[test]
    fn a_request_id_that_could_disturb_a_log_is_ignored() {
        let id = |value: &str| read(&[(names::REQUEST_ID, value)]).0.request_id;
        assert_eq!(id("0d3f-11").as_deref(), Some("0d3f-11"));
        for bad in ["", "a b", "a\n", &"a".repeat(129)] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_malformed_header_is_ignored_and_counted() {
        let (head, page) = read(&[
            (names::TOKENS, "many"),
            (names::FINGERPRINT, "!"),
            (names::MODEL, "%zz"),
            (names::TENANT, "a b"),
            (names::TIER, "urgent"),
            (names::TTFT_MS, "0"),
            (names::DEADLINE, "-1"),
        ]);
        assert_eq!(head.request.tenant, None);
        assert_eq!(head.request.tier, Tier::default());
        assert_eq!(head.request.ttft_slo, None);
        assert_eq!(head.request.time_left, None);
        assert_eq!(head.request.prompt_tokens, 0);
        assert_eq!(head.model, None);
        for name in [
            names::TOKENS,
            names::FINGERPRINT,
            names::MODEL,
            names::TENANT,
            names::TIER,
            names::TTFT_MS,
            names::DEADLINE,
        ] {
            let line = format!("bad_headers_total{{header=\"{name}\"}} 1");
            assert!(page.contains(&line), "{page}");
        }
    }

    #[test]
    fn an_origin_is_trusted_only_on_a_listener_for_regions() {
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
        let (head, page) = read_on(ListenerKind::Regions, &headers);
        assert_eq!(head.origin.region.as_deref(), Some("eu"));
        assert_eq!(head.origin.tried.as_deref(), Some("us"));
        assert!(!page.contains("bad_headers_total{"), "{page}");
    }
}
