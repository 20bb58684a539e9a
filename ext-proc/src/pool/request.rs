//! What is known of a request before anybody has decided anything.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_fingerprint::Fingerprint;
use isotherm_router::{Scope, SessionKey, Tier};
use twox_hash::XxHash3_64;

/// A request that wants a replica: the router's [`Request`](isotherm_router::Request) without an identity, and with
/// addresses in the place of identities. The pool fills in both.
#[derive(Clone, Debug, Default)]
pub struct RouteRequest {
    /// Its prompt.
    pub fingerprint: Arc<Fingerprint>,
    /// Its session, where one is known.
    pub session: Option<SessionKey>,
    /// Its workload tier.
    pub tier: Tier,
    /// Estimated prompt length in tokens.
    pub prompt_tokens: u32,
    /// The most output tokens that it allows, where it says so.
    pub output_tokens_max: Option<u32>,
    /// The only replicas that may serve it, where the gateway restricts them.
    pub subset: Option<Vec<SocketAddr>>,
    /// Whether it may leave this region, and which regions have had it.
    pub scope: Scope,
}

/// The key of a session, from the value of its header. Every instance of the service gets the same one: their hash
/// rings must agree.
#[must_use]
pub fn session_key(header_value: &[u8]) -> SessionKey {
    SessionKey(XxHash3_64::oneshot(header_value))
}
