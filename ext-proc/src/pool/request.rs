//! A request before the pool has decided on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::{Api, Fingerprint};
use isotherm_router::{AdapterKey, ResponseKey, Scope, SessionKey, TenantId, Tier};
use twox_hash::XxHash3_64;

/// A request for a replica: the router's [`Request`](isotherm_router::Request) without an id, and with addresses in
/// place of replica ids. The pool fills in both.
#[derive(Clone, Debug, Default)]
pub struct RouteRequest {
    /// Fingerprint of the prompt.
    pub fingerprint: Arc<Fingerprint>,
    /// Session of the request, if known.
    pub session: Option<SessionKey>,
    /// The stored response that the request continues, if it continues one.
    pub previous_response: Option<ResponseKey>,
    /// Name of the tenant that sent the request, if it has one.
    pub tenant: Option<Arc<str>>,
    /// Workload tier of the request.
    pub tier: Tier,
    /// Budget of the request for its first token, if it states one.
    pub ttft_slo: Option<Duration>,
    /// Time left until the deadline of the request, if it states one.
    pub time_left: Option<Duration>,
    /// Estimated prompt length in tokens.
    pub prompt_tokens: u32,
    /// Output limit of the request in tokens, if it sets one.
    pub output_tokens_max: Option<u32>,
    /// Replicas that may serve the request, if the gateway restricts them.
    pub subset: Option<Vec<EndpointMatch>>,
    /// Adapter that the request names, if it names one.
    pub adapter: Option<AdapterKey>,
    /// Whether the request may leave this region, and the regions that were tried before.
    pub scope: Scope,
    /// Whether the frontend tells when the response begins.
    pub tells_start: bool,
    /// API of the request, if it is one with a prompt.
    pub api: Option<Api>,
    /// Whether the client asks for a streamed response, as far as is known.
    pub wants_stream: bool,
}

/// Replicas that a gateway names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointMatch {
    /// The replica at this address and port.
    Port(SocketAddr),
    /// Every replica at this address.
    Host(IpAddr),
}

impl EndpointMatch {
    /// Parses `ip:port` or `ip`.
    pub fn parse(text: &str) -> Option<Self> {
        let port = text.parse().map(Self::Port).ok();
        port.or_else(|| text.parse().map(Self::Host).ok())
    }
}

impl RouteRequest {
    /// Identity of the tenant: a hash of its name, and 0 without one.
    pub fn tenant_id(&self) -> TenantId {
        self.tenant.as_deref().map(tenant_id).unwrap_or_default()
    }
}

/// Hashes the name of a tenant into its identity, which is never that of the common tenant.
pub(crate) fn tenant_id(name: &str) -> TenantId {
    TenantId(XxHash3_64::oneshot(name.as_bytes()).max(1))
}

/// Hashes the id of a stored response.
pub(crate) fn response_key(id: &str) -> ResponseKey {
    ResponseKey(XxHash3_64::oneshot(id.as_bytes()))
}

/// Hashes the value of a session header into a session key. Every instance of the service computes the same key: their
/// hash rings must agree.
pub fn session_key(header_value: &[u8]) -> SessionKey {
    SessionKey(XxHash3_64::oneshot(header_value))
}
