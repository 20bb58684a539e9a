//! The report of several regions as one page that needs nothing else: no script, no font, no network.

use isotherm_report::page::{page, verdicts};
use isotherm_report::palette::css;
use maud::{Markup, PreEscaped, html};

use super::super::figures::Figures;
use super::chart::{highest, lines};
use super::{Report, Run, TrialReport};

const MORE_STYLE: &str = "
tr.run td { font-weight: 600; border-top: 2px solid #bbb; }
";

/// The page.
pub(super) fn render(report: &Report) -> anyhow::Result<String> {
    let setup = &report.setup;
    let trials = report
        .trials
        .iter()
        .map(trial)
        .collect::<anyhow::Result<Vec<Markup>>>()?;
    let claims: Vec<(bool, String)> = report
        .verdicts
        .iter()
        .map(|one| (one.holds, format!("{} — {}", one.claim, one.measured)))
        .collect();
    let body = html! {
        h1 { "Isotherm: three regions" }
        p {
            "Each region has clients and simulated replicas (" (setup.engine) "), chosen by " (setup.scheme) ". Between regions a message and its answer take "
            (setup.round_trip_ms) " ms. Everything runs " (setup.speed) " times faster than life, the delay too ("
            (setup.round_trip_measured_ms) " ms are injected). Times and rates are those of the engines: measured ones times, or divided by, "
            (setup.speed) "."
        }
        (verdicts(claims.iter().map(|(holds, claim)| (Some(*holds), claim.as_str()))))
        @for trial in trials { (trial) }
        footer {
            "Seed " (setup.seed) ". Requests: those sent in the part of a run that counts; tokens/s: of answers that ended in it. "
            "CPU: how busy the machine was that simulated all of this, and with the demo alone; close to 100 % it, and not the replicas, was measured. "
            "The numbers and curves are in report.json beside this page."
        }
    };
    Ok(page("Isotherm: three regions", MORE_STYLE, &body))
}

fn trial(trial: &TrialReport) -> anyhow::Result<Markup> {
    let top = trial
        .runs
        .iter()
        .map(|run| highest(&run.timeline))
        .fold(1.0, f64::max);
    let charts = trial
        .runs
        .iter()
        .map(|run| Ok((run, lines(&run.timeline, top)?)))
        .collect::<anyhow::Result<Vec<(&Run, String)>>>()?;
    let regions = trial.runs.first().map_or(&[][..], |run| &run.regions);
    Ok(html! {
        section {
            h2 { (trial.clients.label()) }
            p { (trial.description) "." }
            p.key {
                @for (index, region) in regions.iter().enumerate() {
                    span { i style={ "background:" (css(index)) } {} "clients in " (region.name) }
                }
                span { "line: requests under way; filled: those that another region served" }
            }
            div.charts {
                @for (run, svg) in charts {
                    figure { h2 { (run.label()) } (PreEscaped(svg)) figcaption { (run.summary()) } }
                }
            }
            (table(&trial.runs))
        }
    })
}

fn table(runs: &[Run]) -> Markup {
    html! {
        table {
            thead { tr {
                th { "" } th { "requests" } th { "failed" } th { "requests/s" } th { "tokens/s" }
                th { "TTFT p50" } th { "p90 ms" } th { "cache hits" } th { "forwarded" }
                th { "later turns at home" } th { "forwarded" } th { "CPU (own)" }
            } }
            tbody { @for run in runs {
                tr.run { (cells(&run.label(), &run.all)) td { @if let Some(busy) = run.busy() { (busy) } } }
                @for region in &run.regions {
                    tr { (cells(&format!("clients in {}", region.name), &region.figures)) td {} }
                }
            } }
        }
    }
}

fn cells(label: &str, figures: &Figures) -> Markup {
    let turns = &figures.follow_ups;
    html! {
        td { (label) }
        td { (figures.requests) }
        td.failed[figures.failed > 0] { (figures.failed) }
        td { (format!("{:.2}", figures.requests_per_s)) }
        td { (format!("{:.0}", figures.output_tokens_per_s)) }
        td { (format!("{:.0}", figures.ttft_ms.p50)) }
        td { (format!("{:.0}", figures.ttft_ms.p90)) }
        td { (percent(figures.cache_hit_ratio)) }
        td { (percent(figures.forwarded_share)) }
        td { (percent(turns.local_hit_ratio)) " of " (turns.local) }
        td { (percent(turns.forwarded_hit_ratio)) " of " (turns.forwarded) }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn the_page_has_the_verdicts_and_a_chart_of_each_run() {
        let page = super::render(&example()).unwrap();
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("Holds: ") && page.contains("1.200 times"));
        assert!(page.contains("some &lt;clients&gt;"));
        assert_eq!(
            page.matches("http://").count(),
            page.matches("http://www.w3.org").count()
        );
    }
}
