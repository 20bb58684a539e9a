//! The report of the bench: charts and tables of medians over the rounds, and the goals.

use isotherm_harness::MedianRange;
use isotherm_report::chart::{Bar, BarGroup, Bars, Chart, Curve, CurveStyle, Lines};
use isotherm_report::number::{hundredths, whole};
use isotherm_report::{Report, RunFacts, Section, Table};

use crate::goals::goals;
use crate::measurements::PathMeasurements;
use crate::memory::Memory;
use crate::variant::Variant;
use crate::workload::{PromptKind, Workload};

const CHART_SIZE: (u32, u32) = (1_060, 320);

/// A group of workloads that one chart shows, and its name.
type WorkloadGroup = (&'static str, fn(&Workload) -> bool);
const GROUPS: [WorkloadGroup; 3] = [
    ("unique prompts", Workload::is_plain),
    ("conversations", |workload| {
        workload.prompts == PromptKind::MultiTurn
    }),
    ("streamed responses", |workload| workload.chunks > 0),
];

impl PathMeasurements {
    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let sglang = self.sglang_version.as_ref();
        let introduction = format!(
            "Everything on loopback, one Envoy worker, replicas that respond at once. {} rounds of {} s in which the variants \
             take turns, {} clients, {} replicas, CPUs {}{}. Figures are medians over the rounds, with their range. Only \
             ratios hold on other machines.",
            self.rounds,
            self.seconds,
            self.clients,
            self.replicas,
            if self.awake {
                "kept awake"
            } else {
                "free to sleep"
            },
            sglang.map_or_else(String::new, |version| format!(
                ", sglang-router {version} (cache_aware)"
            )),
        );
        Report::new("Isotherm: cost of a request between client and replica")
            .with_facts(RunFacts::collect("cargo xtask bench path"))
            .section(Section::new("").text(introduction).conclusions(goals(self)))
            .sections(
                self.charts()
                    .into_iter()
                    .map(|chart| Section::detail("").charts(vec![chart])),
            )
            .sections(self.workloads.iter().map(|workload| self.costs(workload)))
            .section(self.stream_costs())
            .sections(
                self.workloads
                    .iter()
                    .map(|workload| self.latency_table(workload)),
            )
            .section(self.idle_usage())
            .section(self.memory_use())
            .with_data(self)
    }

    fn charts(&self) -> Vec<Chart> {
        let mut charts = Vec::new();
        for (name, is_member) in GROUPS {
            charts.extend(self.bars(
                format!("CPU microseconds per request, {name}"),
                "All processes of a variant together. Less is better.",
                is_member,
                whole,
                |variant, workload| self.cpu(variant, workload),
            ));
            charts.extend(self.bars(
                format!("Requests per second at saturation, {name}"),
                "Load generator and replicas run on the same machine. More is better.",
                is_member,
                whole,
                |variant, workload| self.rate(variant, workload),
            ));
        }
        for percent in [50.0, 90.0, 99.0] {
            charts.extend(self.bars(
                format!("Milliseconds added to plain Envoy, p{percent:.0}"),
                "At a third of the rate at which Isotherm saturates. Less is better.",
                Workload::is_plain,
                hundredths,
                |variant, workload| {
                    let added = self.added_ms(variant, workload, percent);
                    added.filter(|_| variant != Variant::Envoy)
                },
            ));
        }
        charts.extend(self.memory_chart());
        charts
    }

    /// A chart with a group of bars for each workload; `None` when there is nothing to draw.
    fn bars(
        &self,
        title: String,
        caption: &str,
        is_member: fn(&Workload) -> bool,
        format: fn(f64) -> String,
        value: impl Fn(Variant, &Workload) -> Option<MedianRange>,
    ) -> Option<Chart> {
        let bar = |range: Option<MedianRange>| Bar {
            value: range.map_or(f64::NAN, |range| range.median),
            spread: range.map(|range| (range.min, range.max)),
        };
        let workloads = self.workloads.iter().filter(|workload| is_member(workload));
        let groups: Vec<BarGroup> = workloads
            .map(|workload| BarGroup {
                name: workload.name.to_owned(),
                bars: self
                    .variants
                    .iter()
                    .map(|variant| bar(value(*variant, workload)))
                    .collect(),
            })
            .collect();
        let mut bars = groups.iter().flat_map(|group| &group.bars);
        bars.any(|bar| bar.value.is_finite()).then(|| {
            let plot = Bars {
                groups: groups.clone(),
                reference: None,
                format,
            };
            self.chart(title, caption, plot)
        })
    }

    fn chart(
        &self,
        title: String,
        caption: &str,
        plot: impl Into<isotherm_report::chart::Plot>,
    ) -> Chart {
        let names = self.variants.iter().map(|variant| variant.name());
        Chart::new(title, caption, plot)
            .with_series(names)
            .with_size(CHART_SIZE)
    }

    fn memory_chart(&self) -> Option<Chart> {
        let curve = |(series, variant): (usize, &Variant)| Curve {
            series,
            points: self
                .memory
                .iter()
                .filter(|memory| memory.variant == *variant)
                .map(|memory| (memory.prompts as f64 / 1e3, memory.total() / 1e6))
                .collect(),
            style: CurveStyle::Plain,
        };
        let plot = Lines {
            lines: self.variants.iter().enumerate().map(curve).collect(),
            x_name: "thousand unique prompts of 4 KB".into(),
            y_name: "resident MB".into(),
            ..Lines::default()
        };
        let caption = "All processes of a variant together. Flat is better.";
        (!self.memory.is_empty()).then(|| self.chart("Memory".into(), caption, plot))
    }

    /// Cost and saturation of each variant on a workload.
    fn costs(&self, workload: &Workload) -> Section {
        let mut table = Table::new([
            "",
            "CPU us per request",
            "by process",
            "to Envoy",
            "to the floor",
            "requests/s",
            "ext_proc bytes",
        ]);
        for variant in self.variants.iter().copied() {
            let (Some(cpu), Some(rate)) =
                (self.cpu(variant, workload), self.rate(variant, workload))
            else {
                continue;
            };
            let ratio = |to| {
                let ratio = self.ratio(variant, to, workload);
                ratio.map_or_else(String::new, |ratio| hundredths(ratio.median))
            };
            table.push([
                variant.name().to_owned(),
                range(&cpu),
                self.by_process(variant, workload),
                ratio(Variant::Envoy),
                ratio(Variant::Floor),
                range(&rate),
                self.ext_proc_bytes(variant, workload),
            ]);
        }
        Section::new(format!("{}: cost", workload.name)).table(table)
    }

    fn by_process(&self, variant: Variant, workload: &Workload) -> String {
        let first = self.samples_of(variant, workload).next();
        let labels = first
            .into_iter()
            .flat_map(|sample| sample.cpu_micros.keys());
        let parts = labels.filter_map(|label| {
            let median = self.cpu_of(variant, workload, label)?.median;
            Some(format!("{label} {median:.0}"))
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Bytes per request to the external processor and from it.
    fn ext_proc_bytes(&self, variant: Variant, workload: &Workload) -> String {
        let [to, from] = [0, 1].map(|direction: usize| {
            let samples = self.samples_of(variant, workload);
            MedianRange::of(
                samples.filter_map(|sample| sample.ext_proc_bytes?.get(direction).copied()),
            )
        });
        let bytes = to.zip(from);
        bytes.map_or_else(String::new, |(to, from)| {
            format!("{:.0} / {:.0}", to.median, from.median)
        })
    }

    fn stream_costs(&self) -> Section {
        const PROCESSES: [&str; 3] = ["Envoy", "service", "router"];
        let rate = self.streams.first().map_or(0.0, |turn| turn.per_second);
        let mut table = Table::new(["", "workload", "Envoy", "service", "router"]);
        for workload in self.workloads.iter().filter(|workload| workload.chunks > 0) {
            for variant in self.variants.iter().copied() {
                let cpu = PROCESSES.map(|process| {
                    let cpu = self.stream_cpu_of(variant, workload, process);
                    cpu.as_ref().map_or_else(String::new, range)
                });
                let [envoy, service, router] = cpu;
                if !(envoy.is_empty() && service.is_empty() && router.is_empty()) {
                    table.push([
                        variant.name().to_owned(),
                        workload.name.to_owned(),
                        envoy,
                        service,
                        router,
                    ]);
                }
            }
        }
        Section::new(format!(
            "Streams at one rate, {rate:.0} requests/s: CPU microseconds per request"
        ))
        .table(table)
    }

    /// Latency of each variant at a fixed rate; empty without a turn.
    fn latency_table(&self, workload: &Workload) -> Section {
        let name = workload.name;
        let Some(turn) = self
            .latencies
            .iter()
            .find(|latency| latency.workload == name)
        else {
            return Section::default();
        };
        let mut table = Table::new([
            "",
            "p50 ms",
            "p90 ms",
            "p99 ms",
            "added p50",
            "added p90",
            "added p99",
            "completed",
            "failed",
        ]);
        for variant in self.variants.iter().copied() {
            if self.latencies_of(variant, workload).next().is_none() {
                table.push([variant.name(), "does not keep up"]);
                continue;
            }
            let mut cells = vec![variant.name().to_owned()];
            for index in 0..3 {
                let latencies = self.latencies_of(variant, workload);
                let values = latencies.filter_map(|latency| latency.micros.get(index).copied());
                let median = MedianRange::of(values).map_or(f64::NAN, |range| range.median / 1e3);
                cells.push(hundredths(median));
            }
            for percent in [50.0, 90.0, 99.0] {
                let added = self.added_ms(variant, workload, percent);
                cells.push(added.map_or_else(String::new, |added| {
                    format!("{:.2} ({:.2} to {:.2})", added.median, added.min, added.max)
                }));
            }
            let completed: usize = self
                .latencies_of(variant, workload)
                .map(|latency| latency.requests)
                .sum();
            cells.extend([
                completed.to_string(),
                self.failed(variant, workload).to_string(),
            ]);
            table.push(cells);
        }
        let rate = turn.per_second;
        Section::new(format!("{name}: time from the scheduled arrival to the end of the response, at {rate:.0} requests/s"))
            .table(table)
    }

    fn idle_usage(&self) -> Section {
        let rows = self.idle.iter().map(|idle| {
            let parts = idle.cpu_micros_per_s.iter();
            let parts: Vec<String> = parts
                .map(|(label, micros)| format!("{label} {micros:.0}"))
                .collect();
            [idle.variant.name().to_owned(), parts.join(", ")]
        });
        Section::new("CPU microseconds per second without requests")
            .table(Table::new(["", "by process"]).with_rows(rows))
    }

    /// Memory after the turns at saturation, then at the start, in the middle and at the end of the unique prompts.
    fn memory_use(&self) -> Section {
        let mut table = Table::new(["", "prompts", "resident MB by process"]);
        let mut push = |memory: &Memory| {
            let parts = memory.resident_bytes.iter();
            let parts = parts.map(|(label, bytes)| format!("{label} {}", bytes / 1_000_000));
            let parts: Vec<String> = parts.collect();
            table.push([
                memory.variant.name().to_owned(),
                memory.prompts.to_string(),
                parts.join(", "),
            ]);
        };
        self.memory_after.iter().for_each(&mut push);
        for variant in &self.variants {
            let of_variant = || {
                self.memory
                    .iter()
                    .filter(|memory| memory.variant == *variant)
            };
            let (Some(first), Some(last)) = (of_variant().next(), of_variant().next_back()) else {
                continue;
            };
            let half = of_variant().find(|memory| memory.prompts * 2 >= last.prompts);
            [Some(first), half, Some(last)]
                .into_iter()
                .flatten()
                .for_each(&mut push);
        }
        Section::new("Resident memory").table(table)
    }
}

fn range(range: &MedianRange) -> String {
    format!("{:.0} ({:.0} to {:.0})", range.median, range.min, range.max)
}

#[cfg(test)]
mod tests {
    use isotherm_report::Format;

    use crate::measurements::tests::example;
    use crate::variant::Variant;

    fn markdown(measurements: &super::PathMeasurements) -> String {
        measurements
            .report()
            .unwrap()
            .render(Format::Markdown)
            .unwrap()
    }

    #[test]
    fn the_tables_add_up_processes_and_compare_with_envoy_and_the_floor() {
        let text = markdown(&example());
        for line in [
            "| Envoy | 100 (90 to 105) | Envoy 90, service 10 | 1.00 |",
            "| Isotherm | 200 (200 to 200) | Envoy 190, service 10 | 2.00 | 1.25 | 1000 (1000 to 1000) | 900 / 200 |",
            "| Isotherm | 0.57 | 1.15 | 2.30 | 0.35 (0.30 to 0.40) |",
            "| Isotherm | 7 | Envoy 50 |",
            "| Isotherm | service 2000 |",
            "1 clients, 1 replicas, CPUs free to sleep",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_variant_without_a_latency_did_not_keep_up() {
        let mut measurements = example();
        measurements
            .latencies
            .retain(|latency| latency.variant != Variant::Floor);
        assert!(markdown(&measurements).contains("| floor | does not keep up |"));
    }

    #[test]
    fn the_page_has_a_chart_of_each_measurement() {
        let page = example().report().unwrap().render(Format::Html).unwrap();
        // Cost, saturation, three percentiles, memory.
        assert_eq!(page.matches("<svg").count(), 6);
    }
}
