//! Decisions for people: one log line each, and the opt-in response header.

use std::fmt::Write as _;
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{RequestId, Scope};

use super::head::RequestHead;
use super::reply::RequestHeaders;
use crate::pool::{ForwardRoute, PeerTable, Pool, Route, RouteRequest};

/// How much of a foreign region's name is told, in bytes: as much as a label of a host name.
const REGION_BYTES_MAX: usize = 63;

/// What the log, the header and the answer say of a request, beside how it was decided.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestSummary {
    /// The length of its prompt.
    pub(super) prompt_bytes: u32,
    /// The region that forwarded it here.
    pub(super) guest_of: Option<String>,
    /// The regions that were tried before, comma-separated.
    pub(super) tried: String,
    /// What its answer takes away again.
    pub(super) headers: RequestHeaders,
}

impl RequestSummary {
    /// What `head` says, and where `ask` may go.
    pub(super) fn of(
        head: RequestHead,
        ask: &RouteRequest,
        peer_table: Option<&PeerTable>,
    ) -> Self {
        let (guest_of, tried) = match (&ask.scope, peer_table) {
            (Scope::Forwarded, _) => (head.origin.region, String::new()),
            (Scope::Regions { tried }, Some(peer_table)) => {
                let names = tried.iter().filter_map(|id| peer_table.get(*id));
                let names: Vec<_> = names.map(|peer| &*peer.name).collect();
                (None, names.join(","))
            }
            (Scope::Regions { .. }, None) | (Scope::Local, _) => (None, String::new()),
        };
        Self {
            prompt_bytes: ask.fingerprint.total_bytes(),
            guest_of,
            tried,
            headers: head.headers,
        }
    }
}

/// The value of `x-isotherm-decision` for a request that goes to a replica.
pub(super) fn header(pool: &Pool, route: &Route, summary: &RequestSummary) -> String {
    let decision = &route.decision;
    let mut text = format!("replica={}", route.chosen);
    describe(
        &mut text,
        pool,
        decision.reason.as_str(),
        share(decision.matched_bytes, summary.prompt_bytes),
        decision.queued_for,
    );
    // Writing to a String cannot fail.
    if decision.matched_tokens > 0 {
        let _ = write!(text, ";matched_tokens={}", decision.matched_tokens);
    }
    if let Some(origin) = &summary.guest_of {
        let _ = write!(text, ";origin={}", visible(origin));
    }
    if !summary.tried.is_empty() {
        let _ = write!(text, ";tried={}", summary.tried);
    }
    text
}

/// The same for a request that goes to another region.
pub(super) fn forward_header(
    pool: &Pool,
    forward: &ForwardRoute,
    summary: &RequestSummary,
) -> String {
    let forwarding = &forward.forwarding;
    let mut text = format!("region={}", forward.peer.name);
    describe(
        &mut text,
        pool,
        forwarding.reason.as_str(),
        share(forwarding.matched_bytes, summary.prompt_bytes),
        forwarding.queued_for,
    );
    // Writing to a String cannot fail.
    if forwarding.matched_tokens > 0 {
        let _ = write!(text, ";matched_tokens={}", forwarding.matched_tokens);
    }
    if !summary.tried.is_empty() {
        let _ = write!(text, ";tried={}", summary.tried);
    }
    text
}

fn describe(text: &mut String, pool: &Pool, reason: &str, matched: f64, queued_for: Duration) {
    let policy = pool.config().borrow().router.policy;
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        ";policy={policy};reason={reason};matched={matched:.3};queued_ms={}",
        queued_for.as_millis(),
    );
}

/// One line per decision.
pub(super) fn log(pool: &Pool, request: RequestId, route: &Route, summary: &RequestSummary) {
    let decision = &route.decision;
    tracing::debug!(
        pool = %pool.name(),
        request = request.0,
        replica = %route.chosen,
        fallbacks = ?route.fallbacks,
        reason = decision.reason.as_str(),
        prompt_bytes = summary.prompt_bytes,
        matched_bytes = decision.matched_bytes,
        matched_tokens = decision.matched_tokens,
        queued_ms = decision.queued_for.as_secs_f64() * 1e3,
        origin = summary.guest_of,
        tried = summary.tried,
        "routed"
    );
}

/// One line per request that leaves this region.
pub(super) fn log_forward(
    pool: &Pool,
    request: RequestId,
    forward: &ForwardRoute,
    summary: &RequestSummary,
) {
    let forwarding = &forward.forwarding;
    tracing::debug!(
        pool = %pool.name(),
        request = request.0,
        region = %forward.peer.name,
        reason = forwarding.reason.as_str(),
        prompt_bytes = summary.prompt_bytes,
        matched_bytes = forwarding.matched_bytes,
        matched_tokens = forwarding.matched_tokens,
        queued_ms = forwarding.queued_for.as_secs_f64() * 1e3,
        estimated_ttft_ms = forwarding.estimated_ttft.as_secs_f64() * 1e3,
        tried = summary.tried,
        "forwarded"
    );
}

/// A region's name as another region wrote it, fit for a member of a header.
fn visible(name: &str) -> String {
    let fits = |c: &char| c.is_ascii_graphic() && !matches!(c, ';' | '=' | ',');
    name.chars().filter(fits).take(REGION_BYTES_MAX).collect()
}

/// One line per response of which the filter told the outcome.
pub(super) fn log_outcome(pool: &Pool, request: RequestId, outcome: &Outcome) {
    tracing::debug!(
        pool = %pool.name(),
        request = request.0,
        status = outcome.status,
        ttft_us = outcome.ttft_us,
        prompt_tokens = outcome.prompt_tokens,
        cached_tokens = outcome.cached_tokens,
        completion_tokens = outcome.completion_tokens,
        served = outcome.served,
        "finished"
    );
}

fn share(part: u32, whole: u32) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    f64::from(part) / f64::from(whole)
}
