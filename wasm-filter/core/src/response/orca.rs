//! An engine's report of its own load in a response header (ORCA).
//!
//! Engines send it on demand, as `TEXT named_metrics.num_requests_waiting=0.0, ...` or as `JSON {...}`. No probe is more
//! recent, and it costs no request of its own.

use std::collections::BTreeMap;

use isotherm_fingerprint::outcome::LoadReport;
use serde::Deserialize;

/// The request header that asks an engine for its report.
pub const FORMAT_HEADER: &str = "endpoint-load-metrics-format";
/// The requested format of the report.
pub const FORMAT: &str = "TEXT";
/// The response header with the report.
pub const REPORT_HEADER: &str = "endpoint-load-metrics";
/// The longest report that the filter reads, in bytes.
const REPORT_BYTES_MAX: usize = 4096;

const WAITING: &str = "num_requests_waiting";
const RUNNING: &str = "num_requests_running";
const KV_USAGE: [&str; 2] = ["kv_cache_usage_perc", "gpu_cache_usage_perc"];

/// Parses a report; `None` without the number of waiting requests.
pub(super) fn parse(value: &[u8]) -> Option<LoadReport> {
    if value.len() > REPORT_BYTES_MAX {
        return None;
    }
    let value = str::from_utf8(value).ok()?.trim();
    let (format, report) = value.split_once(char::is_whitespace)?;
    let metrics = match format {
        "TEXT" => from_text(report),
        "JSON" => serde_json::from_str::<Json>(report).ok()?.named_metrics,
        _ => return None,
    };
    let metric = |name: &str| metrics.get(name).copied().filter(|value| *value >= 0.0);
    Some(LoadReport {
        waiting: count(metric(WAITING)?),
        running: metric(RUNNING).map(count),
        kv_usage: KV_USAGE
            .into_iter()
            .find_map(metric)
            .filter(|share| *share <= 1.0)
            .map(|share| share as f32),
    })
}

#[derive(Deserialize)]
struct Json {
    named_metrics: BTreeMap<String, f64>,
}

fn from_text(report: &str) -> BTreeMap<String, f64> {
    report
        .split(',')
        .filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            let name = name.trim().strip_prefix("named_metrics.")?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        })
        .collect()
}

/// A count, which engines report as floating point; `as` saturates.
fn count(value: f64) -> u32 {
    value.round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_format_of_vllm_is_parsed() {
        let report = parse(
            b"TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25",
        );
        assert_eq!(
            report,
            Some(LoadReport {
                waiting: 3,
                running: None,
                kv_usage: Some(0.25)
            })
        );
    }

    #[test]
    fn the_json_format_is_parsed() {
        let report = parse(
            br#"JSON {"cpu_utilization":0.1,"named_metrics":{"num_requests_waiting":0,"num_requests_running":7}}"#,
        );
        assert_eq!(
            report,
            Some(LoadReport {
                waiting: 0,
                running: Some(7),
                kv_usage: None
            })
        );
    }

    #[test]
    fn malformed_reports_are_refused() {
        for value in [
            "",
            "TEXT",
            "BIN AAAA",
            "TEXT cpu_utilization=0.3",
            "TEXT named_metrics.num_requests_waiting=-1",
            "TEXT named_metrics.num_requests_waiting=NaN",
            "TEXT named_metrics.num_requests_waiting=x",
            "JSON {",
            "JSON {\"named_metrics\":[]}",
        ] {
            assert_eq!(parse(value.as_bytes()), None, "{value}");
        }
        assert_eq!(parse(&[0xff, 0x20]), None);
    }
}
