//! The goals of the project for the cost of a request, judged by a run. A run without figures for a goal omits it.

use isotherm_report::Conclusion;

use crate::measurements::{PathMeasurements, cpu_of, of};
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

/// The variants that a request may cost little more than, and their names.
const FLOORS: [(Variant, &str); 2] = [
    (Variant::Floor, "the floor"),
    (
        Variant::FloorHeaders,
        "the floor without its second message",
    ),
];

/// The goals as conclusions of the report.
pub(crate) fn goals(all: &PathMeasurements) -> Vec<Conclusion> {
    let mut goals = Vec::new();
    for workload in all.workloads.iter().filter(|workload| workload.is_plain()) {
        let failed = all.failed(Variant::Isotherm, workload);
        let figures = cpu(all, workload).into_iter().chain(latency(all, workload));
        goals.extend(figures.map(|figure| figure.conclusion(failed)));
    }
    let variants = [Variant::Isotherm, Variant::IsothermUnix].into_iter();
    let memory = variants.filter_map(|variant| memory(all, variant));
    let figures = chunks(all).into_iter().chain(memory);
    goals.extend(figures.map(|figure| figure.conclusion(0)));
    goals
}

/// A measured figure, and its bound.
struct Figure {
    subject: String,
    measured: f64,
    bound: f64,
}

impl Figure {
    fn new(subject: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self {
            subject: subject.into(),
            measured,
            bound,
        }
    }

    /// The conclusion. A variant that fails requests meets no goal.
    fn conclusion(self, failed: u64) -> Conclusion {
        let Self {
            mut subject,
            measured,
            bound,
        } = self;
        if failed > 0 {
            subject += &format!(" ({failed} requests failed)");
        }
        Conclusion::claim(
            format!("{subject}: at most {bound}"),
            measured <= bound && failed == 0,
        )
        .measured(format!("{measured:.2}"))
    }
}

/// CPU time over the floors and SGLang's router, and saturation over the router's.
fn cpu(all: &PathMeasurements, workload: &Workload) -> Vec<Figure> {
    let name = workload.name;
    let ratio = |to| Some(all.ratio(Variant::Isotherm, to, workload)?.median);
    let floors = FLOORS.into_iter().filter_map(|(floor, floor_name)| {
        let subject = format!("CPU over {floor_name}, {name}");
        Some(Figure::new(subject, ratio(floor)?, FLOOR_RATIO_MAX))
    });
    let mut figures: Vec<Figure> = floors.collect();
    let bounds = ROUTER_RATIO_MAX.iter();
    let bound = bounds
        .copied()
        .find(|(bytes, _)| *bytes == workload.prompt_bytes);
    if let Some(((_, bound), ratio)) = bound.zip(ratio(Variant::SglangRouter)) {
        figures.push(Figure::new(
            format!("CPU over sglang-router, {name}"),
            ratio,
            bound,
        ));
    }
    let rate = |variant| Some(all.rate(variant, workload)?.median);
    let rates = rate(Variant::SglangRouter).zip(rate(Variant::Isotherm));
    if let Some((router, own)) = rates.filter(|_| workload.prompt_bytes >= 64 << 10) {
        let subject = format!("requests/s at saturation of sglang-router over Isotherm, {name}");
        figures.push(Figure::new(subject, router / own, 1.0));
    }
    figures
}

/// Growth of the cost from the shortest stream to the longest.
fn chunks(all: &PathMeasurements) -> Vec<Figure> {
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
    let mut figures = Vec::new();
    let service = |workload| {
        let cpu = cpu_of(of(&all.streams, Variant::Isotherm, workload), "service")?.median;
        Some((cpu, cpu - idle_per_stream(all)?))
    };
    if let Some(((short, short_net), (long, long_net))) = service(short).zip(service(long)) {
        let subject = "CPU of the service at one rate, 1,000 chunks over 1";
        figures.push(Figure::new(subject, long / short, CHUNKS_GROWTH_MAX));
        let subject = "CPU of the service at one rate without its idle use, 1,000 chunks over 1";
        figures.push(Figure::new(
            subject,
            long_net / short_net,
            CHUNKS_GROWTH_MAX,
        ));
    }
    let envoy = |variant, workload| {
        cpu_of(of(&all.samples, variant, workload), "Envoy").map(|cpu| cpu.median)
    };
    let per_chunk = |variant| Some((envoy(variant, long)? - envoy(variant, short)?) / 999.0);
    if let Some((own, plain)) = per_chunk(Variant::Isotherm).zip(per_chunk(Variant::Envoy)) {
        let subject = "CPU microseconds in Envoy per chunk beyond plain Envoy";
        figures.push(Figure::new(subject, own - plain, CHUNK_MICROS_MAX));
    }
    figures
}

/// Idle CPU time of the service per stream at one rate, in microseconds.
fn idle_per_stream(all: &PathMeasurements) -> Option<f64> {
    let mut idle = all.idle.iter();
    let idle = idle.find(|idle| idle.variant == Variant::Isotherm)?;
    let per_second = all.streams.first()?.per_second;
    Some(idle.cpu_micros_per_s.get("service")? / per_second)
}

fn latency(all: &PathMeasurements, workload: &Workload) -> Vec<Figure> {
    let name = workload.name;
    let added = |variant, percent| Some(all.added_ms(variant, workload, percent)?.median);
    let p50 = added(Variant::Isotherm, 50).map(|p50| {
        Figure::new(
            format!("added milliseconds at p50, {name}"),
            p50,
            ADDED_P50_MS_MAX,
        )
    });
    // A floor that adds no time shows that the machine was too busy to measure.
    let floor = added(Variant::Floor, 99).filter(|floor| *floor > 0.0);
    let p99 = added(Variant::Isotherm, 99).zip(floor).map(|(own, floor)| {
        let subject = format!("added time at p99 over that of the floor, {name}");
        Figure::new(subject, own / floor, ADDED_P99_RATIO_MAX)
    });
    p50.into_iter().chain(p99).collect()
}

fn memory(all: &PathMeasurements, variant: Variant) -> Option<Figure> {
    let of_variant = || all.memory.iter().filter(|memory| memory.variant == variant);
    let last = of_variant().next_back()?;
    let is_half = |memory: &&Memory| {
        // One reading with prompts shows no growth.
        memory.prompts * 2 >= last.prompts && memory.prompts > 0 && memory.prompts < last.prompts
    };
    let half = of_variant().find(is_half)?;
    let (name, prompts) = (variant.name(), last.prompts);
    let subject = format!("memory of {name} after {prompts} unique prompts over half of them");
    Some(Figure::new(
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
        let goals = goals(&example());
        let found = |subject: &str| goals.iter().find(|goal| goal.text.starts_with(subject));
        for (subject, holds, measured) in [
            ("CPU over the floor, 4 KB", true, "1.25"),
            ("added milliseconds at p50, 4 KB", true, "0.35"),
            ("added time at p99", false, "3.50"),
        ] {
            let goal = found(subject).unwrap();
            assert_eq!(goal.holds, Some(holds), "{subject}");
            assert_eq!(goal.measured.as_deref(), Some(measured), "{subject}");
        }
        for omitted in ["memory of", "CPU over sglang-router", "CPU of the service"] {
            assert!(found(omitted).is_none(), "{omitted}");
        }
    }

    #[test]
    fn memory_is_judged_from_half_of_the_prompts() {
        let mut all = example();
        let is_met = |all: &PathMeasurements| {
            memory(all, Variant::Isotherm).map(|figure| figure.measured <= figure.bound)
        };
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
        for turn in &mut all.latencies {
            turn.failed = u64::from(turn.variant == Variant::Isotherm && turn.round == 1);
        }
        for goal in goals(&all) {
            assert_eq!(goal.holds, Some(false), "{}", goal.text);
            assert!(goal.text.contains("(1 requests failed)"), "{}", goal.text);
        }
    }
}
