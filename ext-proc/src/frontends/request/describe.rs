//! Decisions for people: a log line for each, and the optional response header.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::{RequestId, Scope, Tier};

use super::head::RequestHead;
use super::reply::RequestHeaders;
use crate::admin::view::DecisionView;
use crate::decision_log::unix_ms;
use crate::pool::{Endpoint, ForwardRoute, PeerTable, Pool, Route, RouteRequest};
use crate::tier;

/// Longest name of another region in a header, in bytes: as long as a label of a host name.
const REGION_BYTES_MAX: usize = 63;

/// The parts of a request that the log, the header and the reply need besides the decision.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestSummary {
    pub(super) prompt_bytes: u32,
    /// Region that forwarded the request.
    pub(super) forwarded_from: Option<String>,
    /// Regions that were tried before, comma-separated.
    pub(super) tried: String,
    /// Tenant that sent the request.
    pub(super) tenant: Option<Arc<str>>,
    /// Workload tier of the request.
    pub(super) tier: Tier,
    /// Budget of the request for its first token, if it states one.
    pub(super) ttft_slo: Option<Duration>,
    /// Time left until the deadline of the request at its arrival, if it states one.
    pub(super) time_left: Option<Duration>,
    /// Model by which the request names an adapter.
    pub(super) adapter: Option<String>,
    /// Whether the gateway sends no request without an endpoint.
    pub(super) needs_endpoint: bool,
    /// Headers that the reply depends on.
    pub(super) headers: RequestHeaders,
}

impl RequestSummary {
    pub(super) fn of(
        head: RequestHead,
        request: &RouteRequest,
        peer_table: Option<&PeerTable>,
    ) -> Self {
        let (forwarded_from, tried) = match (&request.scope, peer_table) {
            (Scope::Forwarded, _) => (head.origin.region, String::new()),
            (Scope::Regions { tried }, Some(peer_table)) => {
                let names = tried.iter().filter_map(|id| peer_table.get(*id));
                let names: Vec<_> = names.map(|peer| &*peer.name).collect();
                (None, names.join(","))
            }
            (Scope::Regions { .. }, None) | (Scope::Local, _) => (None, String::new()),
        };
        Self {
            prompt_bytes: request.fingerprint.total_bytes(),
            forwarded_from,
            tried,
            tenant: request.tenant.clone(),
            tier: request.tier,
            ttft_slo: request.ttft_slo,
            time_left: request.time_left,
            adapter: request.adapter.and(head.model),
            needs_endpoint: head.needs_endpoint,
            headers: head.headers,
        }
    }
}

/// Returns the value of `x-isotherm-decision` for a route to a replica.
pub(super) fn header(pool: &Pool, route: &Route, summary: &RequestSummary) -> String {
    let decision = &route.decision;
    let match_ = (decision.matched_bytes, decision.matched_tokens);
    let target = format!("replica={}", route.chosen);
    let reason = decision.reason.as_ref();
    let mut text = describe(target, pool, reason, match_, decision.queued_for, summary);
    if let Some(prefiller) = &route.prefiller {
        // Writing to a String cannot fail.
        let _ = write!(text, ";prefiller={prefiller}");
    }
    if let Some((region, revision)) = route.lease.as_deref() {
        let _ = write!(text, ";lease={region}/{revision}");
    }
    text
}

/// Returns the value of `x-isotherm-decision` for a route to another region.
pub(super) fn forward_header(
    pool: &Pool,
    route: &ForwardRoute,
    summary: &RequestSummary,
) -> String {
    let decision = &route.forwarding;
    let match_ = (decision.matched_bytes, decision.matched_tokens);
    let target = format!("region={}", route.peer.name);
    let reason = decision.reason.as_ref();
    describe(target, pool, reason, match_, decision.queued_for, summary)
}

fn describe(
    mut text: String,
    pool: &Pool,
    reason: &str,
    (matched_bytes, matched_tokens): (u32, u32),
    queued_for: Duration,
    summary: &RequestSummary,
) -> String {
    let policy = pool.config().borrow().router.policy.clone();
    let matched = f64::from(matched_bytes) / f64::from(summary.prompt_bytes.max(1));
    let queued_ms = queued_for.as_millis();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        ";policy={policy};reason={reason};matched={matched:.3};queued_ms={queued_ms}"
    );
    if matched_tokens > 0 {
        let _ = write!(text, ";matched_tokens={matched_tokens}");
    }
    if let Some(origin) = &summary.forwarded_from {
        let _ = write!(text, ";origin={}", visible(origin));
    }
    if !summary.tried.is_empty() {
        let _ = write!(text, ";tried={}", summary.tried);
    }
    if pool.has_tiers() {
        let _ = write!(text, ";tier={}", tier::name(summary.tier));
    }
    text
}

/// Returns a decision for the log of decisions. Its target and its reason follow.
pub(super) fn view(
    pool: &Pool,
    request: RequestId,
    id: Option<&str>,
    (matched_bytes, queued_for): (u32, Duration),
    summary: &RequestSummary,
) -> DecisionView {
    DecisionView {
        time_unix_ms: unix_ms(),
        id: id.map(str::to_owned),
        pool: pool.name().to_string(),
        request: request.0,
        matched_share: f64::from(matched_bytes) / f64::from(summary.prompt_bytes.max(1)),
        queued_ms: queued_for.as_secs_f64() * 1e3,
        origin: summary.forwarded_from.clone(),
        tenant: summary.tenant.as_deref().map(str::to_owned),
        tier: pool
            .has_tiers()
            .then(|| tier::name(summary.tier).to_owned()),
        ..DecisionView::default()
    }
}

/// Reduces the name of another region to characters that are safe in a header.
fn visible(name: &str) -> String {
    let is_safe = |c: &char| c.is_ascii_graphic() && !matches!(c, ';' | '=' | ',');
    name.chars()
        .filter(is_safe)
        .take(REGION_BYTES_MAX)
        .collect()
}

pub(super) fn log(
    pool: &Pool,
    request: RequestId,
    id: Option<&str>,
    route: &Route,
    summary: &RequestSummary,
) {
    let decision = &route.decision;
    tracing::debug!(
        id,
        pool = %pool.name(),
        request = request.0,
        replica = %route.chosen,
        fallbacks = ?route.fallbacks,
        prefiller = route.prefiller.as_ref().map(Endpoint::as_str),
        reason = decision.reason.as_ref(),
        prompt_bytes = summary.prompt_bytes,
        matched_bytes = decision.matched_bytes,
        matched_tokens = decision.matched_tokens,
        queued_ms = decision.queued_for.as_secs_f64() * 1e3,
        origin = summary.forwarded_from,
        tried = summary.tried,
        tenant = summary.tenant.as_deref(),
        tier = tier::name(summary.tier),
        "routed"
    );
}

pub(super) fn log_forward(
    pool: &Pool,
    request: RequestId,
    id: Option<&str>,
    route: &ForwardRoute,
    summary: &RequestSummary,
) {
    let decision = &route.forwarding;
    tracing::debug!(
        id,
        pool = %pool.name(),
        request = request.0,
        region = %route.peer.name,
        reason = decision.reason.as_ref(),
        prompt_bytes = summary.prompt_bytes,
        matched_bytes = decision.matched_bytes,
        matched_tokens = decision.matched_tokens,
        queued_ms = decision.queued_for.as_secs_f64() * 1e3,
        estimated_ttft_ms = decision.estimated_ttft.as_secs_f64() * 1e3,
        tried = summary.tried,
        tenant = summary.tenant.as_deref(),
        tier = tier::name(summary.tier),
        "forwarded"
    );
}

pub(super) fn log_outcome(pool: &Pool, request: RequestId, id: Option<&str>, outcome: &Outcome) {
    tracing::debug!(
        id,
        pool = %pool.name(),
        request = request.0,
        status = outcome.status,
        ttft_us = outcome.ttft_us,
        prompt_tokens = outcome.prompt_tokens,
        cached_tokens = outcome.cached_tokens,
        completion_tokens = outcome.completion_tokens,
        upstream = outcome.upstream,
        "finished"
    );
}
