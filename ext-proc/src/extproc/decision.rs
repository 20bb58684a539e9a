//! Decisions for people: one log line each, and the opt-in response header.

use std::fmt::Write as _;

use isotherm_fingerprint::outcome::Outcome;
use isotherm_router::RequestId;

use crate::driver::{Pool, Route};

/// The value of `x-isotherm-decision`.
pub(super) fn header(pool: &Pool, route: &Route, prompt_bytes: u32) -> String {
    let decision = &route.decision;
    let policy = pool.config().borrow().router.policy;
    let mut text = format!(
        "replica={};policy={policy};reason={};matched={:.3};queued_ms={}",
        route.chosen,
        decision.reason.as_str(),
        share(decision.matched_bytes, prompt_bytes),
        decision.queued_for.as_millis(),
    );
    if decision.matched_tokens > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ";matched_tokens={}", decision.matched_tokens);
    }
    text
}

/// One line per decision.
pub(super) fn log(pool: &Pool, request: RequestId, route: &Route, prompt_bytes: u32) {
    let decision = &route.decision;
    tracing::debug!(
        pool = %pool.name(),
        request = request.0,
        replica = %route.chosen,
        fallbacks = ?route.fallbacks,
        reason = decision.reason.as_str(),
        prompt_bytes,
        matched_bytes = decision.matched_bytes,
        matched_tokens = decision.matched_tokens,
        queued_ms = decision.queued_for.as_secs_f64() * 1e3,
        "routed"
    );
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
