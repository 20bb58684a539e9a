//! The tables: medians over the rounds, in Markdown.

use std::fmt::Write as _;

use super::{Report, goals, place_of};
use crate::memory::Memory;
use crate::variant::Variant;
use crate::workload::Workload;
use isotherm_harness::MedianRange;

pub(super) fn write(report: &Report) -> String {
    let mut text = format!(
        "{} rounds of {} s, {} clients, {} replicas, {}{}.\n",
        report.rounds,
        report.seconds,
        report.clients,
        report.replicas,
        report.processors(),
        report
            .sglang_version
            .as_ref()
            .map_or_else(String::new, |version| format!(
                ", sglang-router {version} (cache_aware)"
            ))
    );
    for workload in &report.workloads {
        costs(&mut text, report, workload);
    }
    streams(&mut text, report);
    latencies(&mut text, report);
    idle(&mut text, report);
    memory(&mut text, report);
    let failed = report.samples.iter().map(|sample| sample.failed);
    let late = report.latencies.iter().map(|latency| latency.failed);
    let failed: u64 = failed.chain(late).sum();
    let _ = writeln!(text, "\nRequests that failed: {failed}");
    goals::write(&mut text, report);
    text
}

fn costs(text: &mut String, report: &Report, workload: &Workload) {
    let _ = writeln!(
        text,
        "\n{}: CPU microseconds per request, what the row carries, and bytes per request to and from the external processor\n\n\
         | | CPU us (least to most) | of which | to Envoy | to the floor | requests/s (least to most) | ext_proc bytes |\n\
         | --- | --- | --- | --- | --- | --- | --- |",
        workload.name
    );
    for row in &report.rows {
        if let Some(line) = cost(report, *row, workload) {
            let _ = writeln!(text, "{line}");
        }
    }
}

fn cost(report: &Report, row: Variant, workload: &Workload) -> Option<String> {
    let total = report.cpu(row, workload)?;
    let rate = MedianRange::of(report.rates(row, workload))?;
    let labels: Vec<&str> = report
        .of(row, workload)
        .next()?
        .cpu_micros
        .keys()
        .copied()
        .collect();
    let parts: Vec<String> = labels
        .iter()
        .filter_map(|label| {
            let median = report.cpu_of(row, workload, label)?.median;
            Some(format!("{label} {median:.0}"))
        })
        .collect();
    let ratio = |to| {
        let ratio = report.ratio(row, to, workload);
        ratio.map_or_else(String::new, |ratio| format!("{:.2}", ratio.median))
    };
    let bytes = |way: usize| {
        let samples = report.of(row, workload);
        MedianRange::of(samples.filter_map(|sample| sample.ext_proc_bytes?.get(way).copied()))
    };
    let bytes = bytes(0)
        .zip(bytes(1))
        .map_or_else(String::new, |(to, from)| {
            format!("{:.0} / {:.0}", to.median, from.median)
        });
    Some(format!(
        "| {} | {} | {} | {} | {} | {} | {bytes} |",
        row.name(),
        span(&total),
        parts.join(", "),
        ratio(Variant::Envoy),
        ratio(Variant::Floor),
        span(&rate),
    ))
}

fn streams(text: &mut String, report: &Report) {
    let Some(rate) = report.streams.first().map(|turn| turn.per_second) else {
        return;
    };
    let _ = writeln!(
        text,
        "\nStreams at one rate, {rate:.0} requests/s: CPU microseconds per request (least to most), by process\n"
    );
    for workload in report.workloads.iter().filter(|of| of.chunks > 0) {
        for row in &report.rows {
            let parts = ["Envoy", "service", "router"].iter().filter_map(|process| {
                let of = report.streams_of(*row, workload, process)?;
                Some(format!("{process} {}", span(&of)))
            });
            let parts: Vec<String> = parts.collect();
            let _ = writeln!(
                text,
                "- {}, {}: {}",
                workload.name,
                row.name(),
                parts.join(", ")
            );
        }
    }
}

fn latencies(text: &mut String, report: &Report) {
    for workload in &report.workloads {
        let own = |row: Variant| {
            report
                .latencies
                .iter()
                .filter(move |latency| latency.row == row && latency.workload == workload.name)
        };
        let Some(rate) = report
            .latencies
            .iter()
            .find(|latency| latency.workload == workload.name)
        else {
            continue;
        };
        let _ = writeln!(
            text,
            "\n{}: milliseconds from when a request was due to the end of its answer, at {:.0} requests/s; what is added to plain Envoy\n\n\
             | | p50 | p90 | p99 | added p50 (least to most) | added p90 | added p99 | answered, failed |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |",
            workload.name, rate.per_second
        );
        for row in &report.rows {
            if own(*row).next().is_none() {
                let _ = writeln!(
                    text,
                    "| {} | does not keep up |{}",
                    row.name(),
                    " |".repeat(6)
                );
                continue;
            }
            let at = |place: usize| {
                let values = own(*row).filter_map(|latency| latency.micros.get(place).copied());
                MedianRange::of(values)
                    .map_or_else(String::new, |of| format!("{:.2}", of.median / 1e3))
            };
            let added = |percent: f64| {
                report
                    .added(*row, workload, place_of(percent))
                    .map_or_else(String::new, |of| {
                        let [median, least, most] = [of.median, of.min, of.max].map(|us| us / 1e3);
                        format!("{median:.2} ({least:.2} to {most:.2})")
                    })
            };
            let answered: usize = own(*row).map(|latency| latency.requests).sum();
            let failed: u64 = own(*row).map(|latency| latency.failed).sum();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {answered}, {failed} |",
                row.name(),
                at(0),
                at(1),
                at(2),
                added(50.0),
                added(90.0),
                added(99.0),
            );
        }
    }
}

fn idle(text: &mut String, report: &Report) {
    let _ = writeln!(text, "\nCPU microseconds per second while nobody asks\n");
    for rest in &report.rest {
        let parts = rest.cpu_micros_per_s.iter();
        let parts: Vec<String> = parts
            .map(|(label, micros)| format!("{label} {micros:.0}"))
            .collect();
        let _ = writeln!(text, "- {}: {}", rest.row.name(), parts.join(", "));
    }
}

fn memory(text: &mut String, report: &Report) {
    let _ = writeln!(text, "\nResident memory after the prompts of the costs\n");
    for memory in &report.memory_after {
        let _ = writeln!(text, "- {}", look(memory));
    }
    for row in &report.rows {
        let looks: Vec<&Memory> = report
            .memory
            .iter()
            .filter(|memory| memory.row == *row)
            .collect();
        let Some((first, last)) = looks.first().zip(looks.last()) else {
            continue;
        };
        let half = looks
            .iter()
            .find(|memory| memory.prompts * 2 >= last.prompts);
        let _ = writeln!(
            text,
            "\nResident memory while unique prompts of 4 KB come\n"
        );
        for memory in [Some(first), half, Some(last)].into_iter().flatten() {
            let _ = writeln!(text, "- {}", look(memory));
        }
    }
}

fn look(memory: &Memory) -> String {
    let parts = memory.resident_bytes.iter();
    let parts: Vec<String> = parts
        .map(|(label, bytes)| format!("{label} {} MB", bytes / 1_000_000))
        .collect();
    format!(
        "{}: {} after {} prompts",
        memory.row.name(),
        parts.join(", "),
        memory.prompts
    )
}

fn span(of: &MedianRange) -> String {
    format!("{:.0} ({:.0} to {:.0})", of.median, of.min, of.max)
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::Variant;

    #[test]
    fn the_table_adds_up_processes_and_compares_with_envoy_and_the_floor() {
        let table = example().table();
        let has = |line: &str| assert!(table.contains(line), "{line}\n{table}");
        has("| Envoy | 100 (90 to 105) | Envoy 90, service 10 | 1.00 |");
        has(
            "| Isotherm | 200 (200 to 200) | Envoy 190, service 10 | 2.00 | 1.25 | 1000 (1000 to 1000) | 900 / 200 |",
        );
        has("| Isotherm | 0.57 | 1.15 | 2.30 | 0.35 (0.30 to 0.40) |");
        has("- Isotherm: Envoy 50 MB after 7 prompts");
        has("- Isotherm: service 2000");
        has("1 clients, 1 replicas, processors free to sleep.");
    }

    #[test]
    fn a_row_that_was_not_asked_at_a_fixed_rate_did_not_keep_up() {
        let mut report = example();
        report
            .latencies
            .retain(|latency| latency.row != Variant::Floor);
        let table = report.table();
        assert!(
            table.contains("| floor | does not keep up | | | | | | |\n"),
            "{table}"
        );
    }
}
