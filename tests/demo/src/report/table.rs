//! The table that a demo ends with.

use isotherm_report::table::columns;

use super::Run;

const HEADS: [&str; 11] = [
    "policy / push",
    "requests",
    "failed",
    "cache hits",
    "TTFT p50",
    "p90",
    "p99 ms",
    "e2e p50 ms",
    "queue p90 ms",
    "tokens/s",
    "spread",
];

/// One line per run.
pub(super) fn render(runs: &[Run]) -> String {
    let mut rows = vec![HEADS.map(String::from)];
    rows.extend(runs.iter().map(cells));
    columns(&rows)
}

fn cells(run: &Run) -> [String; 11] {
    let millis = |value: f64| {
        if value < 10.0 {
            format!("{value:.1}")
        } else {
            format!("{value:.0}")
        }
    };
    [
        run.label(),
        run.requests.to_string(),
        run.failed.to_string(),
        format!("{:.1} %", run.cache_hit_ratio * 100.0),
        millis(run.ttft_ms.p50),
        millis(run.ttft_ms.p90),
        millis(run.ttft_ms.p99),
        millis(run.e2e_ms.p50),
        millis(run.queue_ms.p90),
        format!("{:.0}", run.output_tokens_per_s),
        format!("{:.2}", run.outstanding_spread),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;

    #[test]
    fn columns_line_up() {
        let table = super::render(&example().runs);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        let end_of = |line: &str, text: &str| line.find(text).map(|start| start + text.len());
        assert_eq!(end_of(lines[0], "cache hits"), end_of(lines[2], "80.0 %"));
        assert_eq!(end_of(lines[0], "TTFT p50"), end_of(lines[3], " 50"));
    }
}
