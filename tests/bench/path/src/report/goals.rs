//! What Isotherm wants of itself, and whether this run shows it. A goal that the run has no figures for is not in the list.

use std::fmt::Write as _;

use super::{MedianRange, Report, place_of};
use crate::memory::Memory;
use crate::variant::Variant;
use crate::workload::Workload;

/// Over the floor, CPU time of Envoy and service together.
const FLOOR_RATIO_MAX: f64 = 1.25;
/// Over `sglang-router`, by the length of the prompt in bytes.
const ROUTER_RATIO_MAX: [(usize, f64); 2] = [(64 << 10, 0.75), (400 << 10, 0.4)];
/// From 1 chunk to 1,000, in the service.
const CHUNKS_GROWTH_MAX: f64 = 1.05;
/// What a chunk costs in Envoy over plain Envoy.
const CHUNK_MICROS_MAX: f64 = 3.0;
/// Added at the median.
const ADDED_P50_MS_MAX: f64 = 0.4;
/// Added at the 99th percentile, over what the floor adds.
const ADDED_P99_RATIO_MAX: f64 = 1.5;
/// From half of the unique prompts to all of them.
const MEMORY_GROWTH_MAX: f64 = 1.02;

/// One goal and what was measured.
struct Goal {
    what: String,
    wanted: String,
    measured: f64,
    met: bool,
}

impl Goal {
    fn at_most(what: String, measured: f64, most: f64) -> Self {
        Self {
            what,
            wanted: format!("at most {most}"),
            measured,
            met: measured <= most,
        }
    }

    /// What does not answer every request may be as fast as it likes.
    fn only_without(self, failed: u64) -> Self {
        if failed == 0 {
            return self;
        }
        Self {
            what: format!("{} ({failed} requests failed)", self.what),
            met: false,
            ..self
        }
    }
}

pub(super) fn write(text: &mut String, report: &Report) {
    let _ = writeln!(
        text,
        "\n| goal | wanted | measured (medians) | |\n| --- | --- | --- | --- |"
    );
    for goal in goals(report) {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} | {} |",
            goal.what,
            goal.wanted,
            goal.measured,
            if goal.met { "met" } else { "not met" }
        );
    }
}

fn goals(report: &Report) -> Vec<Goal> {
    let plain: Vec<&Workload> = report
        .workloads
        .iter()
        .filter(|workload| workload.is_plain())
        .collect();
    let mut goals = Vec::new();
    for workload in &plain {
        for (row, name) in [
            (Variant::Floor, "the floor"),
            (
                Variant::FloorHeaders,
                "the floor without its second message",
            ),
        ] {
            let ratio = report.ratio(Variant::Isotherm, row, workload);
            goals.extend(ratio.map(|ratio| {
                let what = format!("CPU over {name}, {}", workload.name);
                let failed = report.failed(Variant::Isotherm, workload);
                Goal::at_most(what, ratio.median, FLOOR_RATIO_MAX).only_without(failed)
            }));
        }
    }
    let judged = |of: fn(&Report, &Workload) -> Vec<Goal>| {
        plain.iter().flat_map(move |workload| {
            let failed = report.failed(Variant::Isotherm, workload);
            let goals = of(report, workload).into_iter();
            goals.map(move |goal| goal.only_without(failed))
        })
    };
    goals.extend(judged(against_router));
    goals.extend(chunks(report));
    goals.extend(judged(latency));
    for row in [Variant::Isotherm, Variant::IsothermUnix] {
        goals.extend(memory(report, row));
    }
    goals
}

fn against_router(report: &Report, workload: &Workload) -> Vec<Goal> {
    let mut goals = Vec::new();
    let ratio = report.ratio(Variant::Isotherm, Variant::SglangRouter, workload);
    let limit = ROUTER_RATIO_MAX
        .iter()
        .find(|(bytes, _)| *bytes == workload.prompt_bytes);
    if let Some((ratio, (_, most))) = ratio.zip(limit) {
        let what = format!("CPU over sglang-router, {}", workload.name);
        goals.push(Goal::at_most(what, ratio.median, *most));
    }
    let carried = |row| report.carried(row, workload);
    if workload.prompt_bytes >= 64 << 10
        && let Some((own, router)) = carried(Variant::Isotherm).zip(carried(Variant::SglangRouter))
    {
        goals.push(Goal {
            what: format!(
                "requests/s at saturation over sglang-router, {}",
                workload.name
            ),
            wanted: "more than 1".into(),
            measured: own / router,
            met: own > router,
        });
    }
    goals
}

/// From the shortest stream to the longest.
fn chunks(report: &Report) -> Vec<Goal> {
    let of_length = |chunks| {
        report.workloads.iter().find(|workload| {
            workload.chunks == chunks && workload.prompt_bytes == 4 << 10 && {
                workload.prompts == crate::workload::PromptKind::Unique
            }
        })
    };
    let Some((short, long)) = of_length(1).zip(of_length(1_000)) else {
        return Vec::new();
    };
    let median = |row, workload, process| {
        report
            .cpu_of(row, workload, process)
            .map(|of: MedianRange| of.median)
    };
    let mut goals = Vec::new();
    let service = |workload| {
        let of = report.streams_of(Variant::Isotherm, workload, "service")?;
        Some((of.median, of.median - at_rest(report)?))
    };
    if let Some(((short, short_moved), (long, long_moved))) = service(short).zip(service(long)) {
        let what = "the service's CPU at one rate, 1,000 chunks over 1".to_owned();
        goals.push(Goal::at_most(what, long / short, CHUNKS_GROWTH_MAX));
        let what = "the same, without what it uses at rest".to_owned();
        goals.push(Goal::at_most(
            what,
            long_moved / short_moved,
            CHUNKS_GROWTH_MAX,
        ));
    }
    let per_chunk =
        |row| Some((median(row, long, "Envoy")? - median(row, short, "Envoy")?) / 999.0);
    if let Some((own, plain)) = per_chunk(Variant::Isotherm).zip(per_chunk(Variant::Envoy)) {
        let what = "microseconds in Envoy per chunk over plain Envoy".to_owned();
        goals.push(Goal::at_most(what, own - plain, CHUNK_MICROS_MAX));
    }
    goals
}

/// The service's CPU time at rest that falls on one of the streams at one rate, in microseconds.
fn at_rest(report: &Report) -> Option<f64> {
    let rest = report
        .rest
        .iter()
        .find(|rest| rest.row == Variant::Isotherm)?;
    let per_second = report.streams.first()?.per_second;
    Some(rest.cpu_micros_per_s.get("service")? / per_second)
}

fn latency(report: &Report, workload: &Workload) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(added) = report.added(Variant::Isotherm, workload, place_of(50.0)) {
        let what = format!("added milliseconds at p50, {}", workload.name);
        goals.push(Goal::at_most(what, added.median / 1e3, ADDED_P50_MS_MAX));
    }
    let p99 = |row| report.added(row, workload, place_of(99.0));
    // A floor that adds nothing means that the machine was too busy to tell.
    let floor = p99(Variant::Floor).filter(|floor| floor.median > 0.0);
    if let Some((own, floor)) = p99(Variant::Isotherm).zip(floor) {
        let what = format!("added at p99 over what the floor adds, {}", workload.name);
        goals.push(Goal::at_most(
            what,
            own.median / floor.median,
            ADDED_P99_RATIO_MAX,
        ));
    }
    goals
}

fn memory(report: &Report, row: Variant) -> Option<Goal> {
    let looks: Vec<&Memory> = report
        .memory
        .iter()
        .filter(|memory| memory.row == row)
        .collect();
    let last = looks.last()?;
    let half = looks
        .iter()
        .find(|memory| memory.prompts * 2 >= last.prompts)
        // Compared with itself, or with what has seen nothing, it would say nothing about growth.
        .filter(|half| half.prompts > 0 && half.prompts < last.prompts)?;
    let all = |memory: &Memory| memory.resident_bytes.values().sum::<u64>() as f64;
    let what = format!(
        "memory of {} after {} unique prompts over half of them",
        row.name(),
        last.prompts
    );
    Some(Goal::at_most(
        what,
        all(last) / all(half),
        MEMORY_GROWTH_MAX,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn goals_are_judged_by_what_was_measured_and_left_out_where_nothing_was() {
        let goals = goals(&example());
        let found = |what: &str| goals.iter().find(|goal| goal.what.starts_with(what));
        let floor = found("CPU over the floor, 4 KB").unwrap();
        assert!(floor.met && (floor.measured - 1.25).abs() < 1e-9);
        let p50 = found("added milliseconds at p50, 4 KB").unwrap();
        assert!(p50.met && (p50.measured - 0.35).abs() < 1e-9);
        let p99 = found("added at p99").unwrap();
        assert!(!p99.met && (p99.measured - 3.5).abs() < 1e-9);
        assert!(
            found("memory of").is_none(),
            "one look at prompts is no growth"
        );
        assert!(found("CPU over sglang-router").is_none());
        assert!(found("the service's CPU").is_none());
    }

    #[test]
    fn memory_is_judged_from_half_of_the_prompts_on() {
        let mut report = example();
        let met = |report: &Report| memory(report, Variant::Isotherm).map(|goal| goal.met);
        let mut half = report.memory[1].clone();
        half.prompts = 4;
        report.memory.insert(1, half);
        assert_eq!(met(&report), Some(true));
        for bytes in report.memory[2].resident_bytes.values_mut() {
            *bytes *= 2;
        }
        assert_eq!(met(&report), Some(false));
    }

    #[test]
    fn nobody_wins_by_failing() {
        let mut report = example();
        for latency in &mut report.latencies {
            latency.failed = u64::from(latency.row == Variant::Isotherm && latency.round == 1);
        }
        for goal in goals(&report) {
            assert!(!goal.met, "{}", goal.what);
            assert!(goal.what.ends_with("(1 requests failed)"), "{}", goal.what);
        }
    }
}
