//! The report as one page that needs nothing else: no script, no font, no network.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{Group, bars, colour};
use super::{Report, Run};

/// Also for the report of several regions.
pub(crate) const STYLE: &str = "
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; margin: 2rem auto; max-width: 1120px; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; }
h2 { font-size: 1.05rem; margin: 0; }
.verdict { font-size: 1.15rem; background: #eef5fa; border-left: 4px solid #0072b2; padding: .7rem 1rem; }
.key span { display: inline-block; margin-right: 1.4rem; }
.key i { display: inline-block; width: .9em; height: .9em; margin-right: .4em; vertical-align: -.05em; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1rem; }
figure { margin: 0; border: 1px solid #ddd; border-radius: 6px; padding: .8rem; }
figcaption { color: #555; font-size: .9rem; }
svg { width: 100%; height: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; margin: 1.5rem 0; font-size: .92rem; }
th, td { text-align: right; padding: .35rem .5rem; border-bottom: 1px solid #e3e3e3; }
th:first-child, td:first-child { text-align: left; }
.failed { color: #b00020; font-weight: 600; }
footer { color: #666; font-size: .88rem; }
";

/// The page.
pub(super) fn render(report: &Report) -> anyhow::Result<String> {
    let runs = &report.runs;
    let share = |value: f64| format!("{:.0} %", value * 100.0);
    let whole = |value: f64| format!("{value:.0}");
    let hits = bars(
        runs,
        &[Group {
            name: "all prompts",
            value: |run| run.cache_hit_ratio,
        }],
        share,
    )?;
    let ttft = bars(
        runs,
        &[
            Group {
                name: "half within",
                value: |run| run.ttft_ms.p50,
            },
            Group {
                name: "90 % within",
                value: |run| run.ttft_ms.p90,
            },
            Group {
                name: "99 % within",
                value: |run| run.ttft_ms.p99,
            },
        ],
        whole,
    )?;
    let throughput = bars(
        runs,
        &[Group {
            name: "all replicas",
            value: |run| run.output_tokens_per_s,
        }],
        whole,
    )?;
    let spread = bars(
        runs,
        &[Group {
            name: "busiest replica over average",
            value: |run| run.outstanding_spread,
        }],
        |value| format!("{value:.2}"),
    )?;

    let workload = &report.workload;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Isotherm: " (workload.name) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Isotherm: " (workload.name) }
                p {
                    (workload.description) ". Each run: " (workload.replicas) " fresh replicas (" (workload.engine)
                    "), the same requests through a real Envoy. Times are as measured; everything runs "
                    (workload.speed) " times faster than life."
                }
                @if let Some(verdict) = report.verdict() { p.verdict { (verdict) } }
                p.key {
                    @for (index, run) in runs.iter().enumerate() {
                        span { i style={ "background:" (colour(index)) } {} (run.label()) }
                    }
                }
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
            }
        }
    };
    Ok(page.into_string())
}

fn figure(title: &str, explanation: &str, svg: &str) -> Markup {
    html! { figure { h2 { (title) } (PreEscaped(svg)) figcaption { (explanation) } } }
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
