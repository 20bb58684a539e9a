//! The tables and verdicts that a comparison ends with.

use isotherm_report::table::columns;

use super::super::figures::Figures;
use super::Report;

const HEADS: [&str; 10] = [
    "",
    "requests",
    "failed",
    "req/s",
    "tokens/s",
    "TTFT p50",
    "p90 ms",
    "cached",
    "forwarded",
    "CPU (own)",
];

/// A table for each set of clients: each run, and below it its regions. Then the verdicts.
pub(super) fn render(report: &Report) -> String {
    let setup = &report.setup;
    let mut text = format!(
        "{}; times and rates by the engines' clock ({} times faster than life); {} ms between regions and back\n",
        setup.scheme, setup.speed, setup.round_trip_ms
    );
    for trial in &report.trials {
        text.push_str(&format!(
            "\n{}: {}\n",
            trial.clients.label(),
            trial.description
        ));
        let mut rows = vec![HEADS.map(String::from)];
        for run in &trial.runs {
            rows.push(cells(run.label(), &run.all, run.busy().unwrap_or_default()));
            for region in &run.regions {
                let label = format!("  clients in {}", region.name);
                rows.push(cells(label, &region.figures, String::new()));
            }
        }
        text.push_str(&columns(&rows));
    }
    text.push('\n');
    for verdict in &report.verdicts {
        let holds = if verdict.holds { "yes" } else { "NO " };
        text.push_str(&format!(
            "{holds}  {}: {}\n",
            verdict.claim, verdict.measured
        ));
    }
    text
}

fn cells(label: String, figures: &Figures, busy: String) -> [String; 10] {
    [
        label,
        figures.requests.to_string(),
        figures.failed.to_string(),
        format!("{:.2}", figures.requests_per_s),
        format!("{:.0}", figures.output_tokens_per_s),
        format!("{:.0}", figures.ttft_ms.p50),
        format!("{:.0}", figures.ttft_ms.p90),
        format!("{:.1} %", figures.cache_hit_ratio * 100.0),
        format!("{:.1} %", figures.forwarded_share * 100.0),
        busy,
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn every_run_has_its_regions_and_the_verdicts_follow() {
        let text = super::render(&example());
        assert_eq!(text.matches("clients in eu").count(), 3);
        assert!(
            text.contains("forwarding, 12 replicas") && text.contains("150 ms between regions")
        );
        assert!(text.contains("yes  120/40/40: forwarding with 12 replicas"));
    }
}
