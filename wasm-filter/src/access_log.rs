//! Facts about a request for Envoy's access log, as filter state: `%FILTER_STATE(wasm.isotherm.model:PLAIN)%`.
//!
//! Headers are not enough: the route removes those of Isotherm before the access log is written, and response trailers go to
//! the service. Rejected: dynamic metadata, which the interface of the filter cannot set.

use isotherm_fingerprint::names;
use isotherm_fingerprint::outcome::Outcome;
use isotherm_wasm_filter_core::HeaderEdit;
use isotherm_wasm_filter_core::decision_stream::DecisionRecord;
use proxy_wasm::hostcalls;

/// Writes the model, the tenant and the tier of a request that continues.
pub(crate) fn request(edits: &[HeaderEdit]) {
    for edit in edits {
        match edit {
            HeaderEdit::Set(names::MODEL, model) => set("isotherm.model", model),
            HeaderEdit::Set(names::TENANT, tenant) => set("isotherm.tenant", tenant),
            HeaderEdit::Set(names::TIER, tier) => set("isotherm.tier", tier),
            HeaderEdit::Set(..) | HeaderEdit::Remove(_) => {}
        }
    }
}

/// Writes the decision on a request.
pub(crate) fn decision(record: &DecisionRecord) {
    reason(&record.reason);
    number("isotherm.queued_ms", Some(record.queued_ms));
}

/// Writes the reason for a decision; empty where a service of an older version gives none.
pub(crate) fn reason(reason: &str) {
    if !reason.is_empty() {
        set("isotherm.reason", reason.as_bytes());
    }
}

/// Writes the tokens that the engine counted.
pub(crate) fn usage(outcome: &Outcome) {
    number("isotherm.prompt_tokens", outcome.prompt_tokens);
    number("isotherm.cached_tokens", outcome.cached_tokens);
    number("isotherm.output_tokens", outcome.completion_tokens);
}

fn number(name: &str, value: Option<u32>) {
    if let Some(value) = value {
        set(name, value.to_string().as_bytes());
    }
}

/// Sets filter state of the current request; the host puts `wasm.` before the name. A host without filter state logs nothing.
fn set(name: &str, value: &[u8]) {
    let _ = hostcalls::set_property(vec![name], Some(value));
}
