//! The goals of the project for the cost of a request, and whether a run meets them. A run without figures for a goal omits it.

use isotherm_report::Conclusion;

use crate::measurements::PathMeasurements;
use crate::memory::Memory;
use crate::variant::Variant;
use crate::workload::{PromptKind, Workload};

/// CPU time of Envoy and service together over that of the floor.
const FLOOR_RATIO_MAX: f64 = 1.25;
/// CPU time over that of `sglang-router`, by the length of the prompt in bytes.
const ROUTER_RATIO_MAX: [(usize, f64); 2] = [(64 << 10, 0.75), (400 << 10, 0.4)];
/// CPU time of the service for 1,000 chunks over that for one.
const CHUNKS_GROWTH_MAX: f64 = 1.05;
/// CPU time of a chunk in Envoy beyond plain Envoy.
const CHUNK_MICROS_MAX: f64 = 3.0;
/// Added time at the median.
const ADDED_P50_MS_MAX: f64 = 0.4;
/// Added time at the 99th percentile over what the floor adds.
const ADDED_P99_RATIO_MAX: f64 = 1.5;
/// Memory after all unique prompts over memory after half of them.
const MEMORY_GROWTH_MAX: f64 = 1.02;

/// A goal and the measured figure.
struct Goal {
    subject: String,
    bound: String,
    measured: f64,
    is_met: bool,
}

impl Goal {
    fn at_most(subject: String, measured: f64, bound: f64) -> Self {
        Self {
            subject,
            bound: format!("at most {bound}"),
            measured,
            is_met: measured <= bound,
        }
    }

    /// A variant that fails requests meets no goal.
    fn unless_failed(self, failed: u64) -> Self {
        if failed == 0 {
            return self;
        }
        Self {
            subject: format!("{} ({failed} requests failed)", self.subject),
            is_met: false,
            ..self
        }
    }
}

/// The goals as conclusions of the report.
pub(crate) fn goals(all: &PathMeasurements) -> Vec<Conclusion> {
    let goals = all_goals(all).into_iter();
    let conclusion = |goal: Goal| {
        Conclusion::claim(format!("{}: {}", goal.subject, goal.bound), goal.is_met)
            .measured(format!("{:.2}", goal.measured))
    };
    goals.map(conclusion).collect()
}

fn all_goals(all: &PathMeasurements) -> Vec<Goal> {
    let plain = || all.workloads.iter().filter(|workload| workload.is_plain());
    let of_plain = |goals_of: fn(&PathMeasurements, &Workload) -> Vec<Goal>| {
        plain().flat_map(move |workload| {
            let failed = all.failed(Variant::Isotherm, workload);
            let goals = goals_of(all, workload).into_iter();
            goals.map(move |goal| goal.unless_failed(failed))
        })
    };
    let mut goals: Vec<Goal> = of_plain(against_floor).collect();
    goals.extend(of_plain(against_router));
    goals.extend(chunks(all));
    goals.extend(of_plain(latency));
    goals.extend(
        [Variant::Isotherm, Variant::IsothermUnix]
            .into_iter()
            .filter_map(|variant| memory(all, variant)),
    );
    goals
}

fn against_floor(all: &PathMeasurements, workload: &Workload) -> Vec<Goal> {
    let floors = [
        (Variant::Floor, "the floor"),
        (
            Variant::FloorHeaders,
            "the floor without its second message",
        ),
    ];
    let goal = |(variant, name)| {
        let ratio = all.ratio(Variant::Isotherm, variant, workload)?;
        let subject = format!("CPU over {name}, {}", workload.name);
        Some(Goal::at_most(subject, ratio.median, FLOOR_RATIO_MAX))
    };
    floors.into_iter().filter_map(goal).collect()
}

fn against_router(all: &PathMeasurements, workload: &Workload) -> Vec<Goal> {
    let mut goals = Vec::new();
    let ratio = all.ratio(Variant::Isotherm, Variant::SglangRouter, workload);
    let bound = ROUTER_RATIO_MAX
        .iter()
        .find(|(bytes, _)| *bytes == workload.prompt_bytes);
    if let Some((ratio, (_, bound))) = ratio.zip(bound) {
        let subject = format!("CPU over sglang-router, {}", workload.name);
        goals.push(Goal::at_most(subject, ratio.median, *bound));
    }
    let rate = |variant| all.rate(variant, workload).map(|rate| rate.median);
    if workload.prompt_bytes >= 64 << 10
        && let Some((own, router)) = rate(Variant::Isotherm).zip(rate(Variant::SglangRouter))
    {
        goals.push(Goal {
            subject: format!(
                "requests/s at saturation over sglang-router, {}",
                workload.name
            ),
            bound: "more than 1".into(),
            measured: own / router,
            is_met: own > router,
        });
    }
    goals
}

/// From the shortest stream to the longest.
fn chunks(all: &PathMeasurements) -> Vec<Goal> {
    let of_length = |chunks| {
        let is_wanted = |workload: &&Workload| {
            workload.chunks == chunks
                && workload.prompt_bytes == 4 << 10
                && workload.prompts == PromptKind::Unique
        };
        all.workloads.iter().find(is_wanted)
    };
    let Some((short, long)) = of_length(1).zip(of_length(1_000)) else {
        return Vec::new();
    };
    let mut goals = Vec::new();
    let service = |workload| {
        let cpu = all.stream_cpu_of(Variant::Isotherm, workload, "service")?;
        Some((cpu.median, cpu.median - idle_per_stream(all)?))
    };
    if let Some(((short, short_net), (long, long_net))) = service(short).zip(service(long)) {
        let subject = "CPU of the service at one rate, 1,000 chunks over 1".to_owned();
        goals.push(Goal::at_most(subject, long / short, CHUNKS_GROWTH_MAX));
        let subject =
            "CPU of the service at one rate without its idle use, 1,000 chunks over 1".to_owned();
        goals.push(Goal::at_most(
            subject,
            long_net / short_net,
            CHUNKS_GROWTH_MAX,
        ));
    }
    let envoy = |variant, workload| all.cpu_of(variant, workload, "Envoy").map(|cpu| cpu.median);
    let per_chunk = |variant| Some((envoy(variant, long)? - envoy(variant, short)?) / 999.0);
    if let Some((own, plain)) = per_chunk(Variant::Isotherm).zip(per_chunk(Variant::Envoy)) {
        let subject = "CPU microseconds in Envoy per chunk beyond plain Envoy".to_owned();
        goals.push(Goal::at_most(subject, own - plain, CHUNK_MICROS_MAX));
    }
    goals
}

/// Idle CPU time of the service per stream at one rate, in microseconds.
fn idle_per_stream(all: &PathMeasurements) -> Option<f64> {
    let mut idle = all.idle.iter();
    let idle = idle.find(|idle| idle.variant == Variant::Isotherm)?;
    let per_second = all.streams.first()?.per_second;
    Some(idle.cpu_micros_per_s.get("service")? / per_second)
}

fn latency(all: &PathMeasurements, workload: &Workload) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(added) = all.added_ms(Variant::Isotherm, workload, 50.0) {
        let subject = format!("added milliseconds at p50, {}", workload.name);
        goals.push(Goal::at_most(subject, added.median, ADDED_P50_MS_MAX));
    }
    let p99 = |variant| all.added_ms(variant, workload, 99.0);
    // A floor that adds no time shows that the machine was too busy to measure.
    let floor = p99(Variant::Floor).filter(|floor| floor.median > 0.0);
    if let Some((own, floor)) = p99(Variant::Isotherm).zip(floor) {
        let subject = format!(
            "added time at p99 over that of the floor, {}",
            workload.name
        );
        goals.push(Goal::at_most(
            subject,
            own.median / floor.median,
            ADDED_P99_RATIO_MAX,
        ));
    }
    goals
}

fn memory(all: &PathMeasurements, variant: Variant) -> Option<Goal> {
    let of_variant = || all.memory.iter().filter(|memory| memory.variant == variant);
    let last = of_variant().next_back()?;
    let is_half = |memory: &&Memory| {
        // Two different moments with prompts: a single one shows no growth.
        memory.prompts * 2 >= last.prompts && memory.prompts > 0 && memory.prompts < last.prompts
    };
    let half = of_variant().find(is_half)?;
    let (name, prompts) = (variant.name(), last.prompts);
    let subject = format!("memory of {name} after {prompts} unique prompts over half of them");
    Some(Goal::at_most(
        subject,
        last.total() / half.total(),
        MEMORY_GROWTH_MAX,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::tests::example;

    #[test]
    fn goals_are_judged_by_the_measurements_and_omitted_without_any() {
        let goals = all_goals(&example());
        let found = |subject: &str| goals.iter().find(|goal| goal.subject.starts_with(subject));
        let floor = found("CPU over the floor, 4 KB").unwrap();
        assert!(floor.is_met && (floor.measured - 1.25).abs() < 1e-9);
        let p50 = found("added milliseconds at p50, 4 KB").unwrap();
        assert!(p50.is_met && (p50.measured - 0.35).abs() < 1e-9);
        let p99 = found("added time at p99").unwrap();
        assert!(!p99.is_met && (p99.measured - 3.5).abs() < 1e-9);
        for omitted in ["memory of", "CPU over sglang-router", "CPU of the service"] {
            assert!(found(omitted).is_none(), "{omitted}");
        }
    }

    #[test]
    fn memory_is_judged_from_half_of_the_prompts() {
        let mut all = example();
        let is_met =
            |all: &PathMeasurements| memory(all, Variant::Isotherm).map(|goal| goal.is_met);
        let mut half = all.memory[1].clone();
        half.prompts = 4;
        all.memory.insert(1, half);
        assert_eq!(is_met(&all), Some(true));
        for bytes in all.memory[2].resident_bytes.values_mut() {
            *bytes *= 2;
        }
        assert_eq!(is_met(&all), Some(false));
    }

    #[test]
    fn a_variant_that_fails_requests_meets_no_goal() {
        let mut all = example();
        for latency in &mut all.latencies {
            latency.failed = u64::from(latency.variant == Variant::Isotherm && latency.round == 1);
        }
        for goal in all_goals(&all) {
            assert!(!goal.is_met, "{}", goal.subject);
            assert!(
                goal.subject.ends_with("(1 requests failed)"),
                "{}",
                goal.subject
            );
        }
    }
}
