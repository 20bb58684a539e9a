//! The report as one page that needs nothing else: no script, no font, no network.

use isotherm_report::chart::{Bar, BarGroup, Bars, Chart};
use isotherm_report::page::{figure, key, page};
use maud::{Markup, html};

use super::{Report, Run};

/// One group of bars: its name, and a value of each run.
struct Of {
    name: &'static str,
    value: fn(&Run) -> f64,
}

fn bars(runs: &[Run], groups: &[Of], format: fn(f64) -> String) -> anyhow::Result<String> {
    let bar = |value| Bar {
        value,
        spread: None,
    };
    let group = |of: &Of| BarGroup {
        name: of.name.to_owned(),
        bars: runs.iter().map(of.value).map(bar).collect(),
    };
    let chart = Bars {
        groups: groups.iter().map(group).collect(),
        reference: None,
        format,
    };
    Chart::new("", "", chart).svg()
}

/// The page.
pub(super) fn render(report: &Report) -> anyhow::Result<String> {
    let runs = &report.runs;
    let share = |value: f64| format!("{:.0} %", value * 100.0);
    let whole = |value: f64| format!("{value:.0}");
    let hits = bars(
        runs,
        &[Of {
            name: "all prompts",
            value: |run| run.cache_hit_ratio,
        }],
        share,
    )?;
    let ttft = bars(
        runs,
        &[
            Of {
                name: "half within",
                value: |run| run.ttft_ms.p50,
            },
            Of {
                name: "90 % within",
                value: |run| run.ttft_ms.p90,
            },
            Of {
                name: "99 % within",
                value: |run| run.ttft_ms.p99,
            },
        ],
        whole,
    )?;
    let throughput = bars(
        runs,
        &[Of {
            name: "all replicas",
            value: |run| run.output_tokens_per_s,
        }],
        whole,
    )?;
    let spread = bars(
        runs,
        &[Of {
            name: "busiest replica over average",
            value: |run| run.outstanding_spread,
        }],
        |value| format!("{value:.2}"),
    )?;

    let workload = &report.workload;
    let labels: Vec<String> = runs.iter().map(Run::label).collect();
    let body = html! {
        h1 { "Isotherm: " (workload.name) }
        p {
            (workload.description) ". Each run: " (workload.replicas) " fresh replicas (" (workload.engine)
            "), the same requests through a real Envoy. Times are as measured; everything runs "
            (workload.speed) " times faster than life."
        }
        @if let Some(verdict) = report.verdict() { p.verdict { (verdict) } }
        (key(labels.iter().map(String::as_str)))
        div.charts {
            (figure("Found in the KV cache", "Share of prompt tokens that the engines did not have to compute. More is better.", &hits))
            (figure("Time to the first token, ms", "What a user waits before the answer begins. Less is better.", &ttft))
            (figure("Throughput, tokens/s", "Tokens of answers per second. More is better.", &throughput))
            (figure("Evenness", "Requests on the busiest replica over the average, over time. 1 is perfectly even.", &spread))
        }
        (table(runs))
        footer {
            "Seed " (workload.seed) ". pending: a request waits until a replica can start it. blind: it is sent at once. "
            "queue: the time that the service held it back. "
            "The numbers are in report.json beside this page."
        }
    };
    Ok(page(&format!("Isotherm: {}", workload.name), "", &body))
}

fn table(runs: &[Run]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "policy / push" } th { "requests" } th { "failed" } th { "seconds" } th { "cache hits" }
                th { "TTFT mean" } th { "p50" } th { "p90" } th { "p99 ms" }
                th { "e2e p50" } th { "p99 ms" } th { "queue p50" } th { "p99 ms" } th { "tokens/s" }
            } }
            tbody { @for run in runs { tr {
                td { (run.label()) }
                td { (run.requests) }
                td.failed[run.failed > 0] { (run.failed) }
                td { (format!("{:.1}", run.duration_s)) }
                td { (format!("{:.1} %", run.cache_hit_ratio * 100.0)) }
                @for value in [
                    run.ttft_ms.mean, run.ttft_ms.p50, run.ttft_ms.p90, run.ttft_ms.p99,
                    run.e2e_ms.p50, run.e2e_ms.p99, run.queue_ms.p50, run.queue_ms.p99, run.output_tokens_per_s,
                ] { td { (format!("{value:.0}")) } }
            } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn the_page_has_the_verdict_the_charts_and_escapes_text() {
        let page = super::render(&example()).unwrap();
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(
            page.contains("2.0 times as much")
                && page.contains("80 %")
                && page.contains("prefix_tree / pending")
        );
        assert!(page.contains("ten &lt;requests&gt;"));
        assert!(
            !page.contains("http://")
                || page.matches("http://").count() == page.matches("http://www.w3.org").count()
        );
    }
}
