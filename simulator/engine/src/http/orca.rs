//! The load report in a response header, as vLLM gives it: in whole answers only, and only to who asks.
//!
//! A stream's headers leave before its work is done, so vLLM puts none there.

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::Stats;

/// The request header that asks, and the format it asks for.
const ASK: HeaderName = HeaderName::from_static("endpoint-load-metrics-format");
/// The response header with the report.
const REPORT: HeaderName = HeaderName::from_static("endpoint-load-metrics");

/// Adds the report if the request asked for one in a format that there is.
pub fn report(request: &HeaderMap, stats: &Stats, response: &mut HeaderMap) {
    let Some(format) = request.get(ASK).and_then(|format| format.to_str().ok()) else {
        return;
    };
    let waiting = stats.waiting as f64;
    let usage = stats.kv_usage();
    let text = if format.eq_ignore_ascii_case("TEXT") {
        format!(
            "TEXT named_metrics.num_requests_waiting={waiting:?}, named_metrics.kv_cache_usage_perc={usage:?}"
        )
    } else if format.eq_ignore_ascii_case("JSON") {
        let report = serde_json::json!({"named_metrics": {"num_requests_waiting": waiting, "kv_cache_usage_perc": usage}});
        format!("JSON {report}")
    } else {
        return;
    };
    if let Ok(value) = HeaderValue::try_from(text) {
        response.insert(REPORT, value);
    }
}
