//! The report of the bench: tables of medians over the rounds.

use isotherm_harness::MedianRange;
use isotherm_report::number::hundredths;
use isotherm_report::{Report, RunFacts, Section, Table};

use crate::measurements::{PathMeasurements, cpu_of, of};
use crate::memory::Memory;
use crate::turn::PERCENTS;
use crate::variant::Variant;
use crate::workload::Workload;

impl PathMeasurements {
    /// The report.
    ///
    /// # Errors
    /// When the measurements have no JSON form.
    pub fn report(&self) -> anyhow::Result<Report> {
        let (options, smg) = (&self.options, self.smg_version.as_ref());
        let introduction = format!(
            "Everything on loopback, one Envoy worker, replicas that respond at once. {} rounds of {} s in which the variants \
             take turns, {} clients, {} replicas, CPUs {}{}. Figures are medians over the rounds, with their range. Only \
             ratios hold on other machines.",
            options.rounds,
            options.seconds,
            options.clients,
            options.replicas,
            if options.awake {
                "kept awake"
            } else {
                "free to sleep"
            },
            smg.map_or_else(String::new, |version| format!(
                ", smg {version} (cache_aware)"
            )),
        );
        let workloads = || self.workloads.iter();
        let mut sections = vec![Section::new("").text(introduction)];
        sections.extend(workloads().map(|workload| self.costs(workload)));
        sections.push(self.picker_costs());
        sections.push(self.stream_costs());
        sections.extend(workloads().map(|workload| self.latency_table(workload)));
        sections.extend([self.idle_usage(), self.memory_use()]);
        let report = Report {
            facts: Some(RunFacts::collect(match options.pickers {
                true => "cargo xtask bench picker",
                false => "cargo xtask bench path",
            })),
            ..Report::new(
                "Isotherm: cost of a request between client and replica",
                sections,
            )
        };
        report.with_data(self)
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
            let rate = self.rate(variant, workload);
            let Some((cpu, rate)) = self.cpu(variant, workload).zip(rate) else {
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
        let shown = ["", "CPU us per request", "to Envoy"];
        let table = table.headline(&shown, |row| row.text(0) == Variant::Isotherm.name());
        Section::new(format!("{}: cost", workload.name)).table(table)
    }

    /// CPU time of each endpoint picker beyond plain Envoy; empty without one.
    fn picker_costs(&self) -> Section {
        if !self.options.pickers {
            return Section::default();
        }
        let mut table = Table::new([
            "prompt",
            "",
            "Envoy us",
            "service us",
            "both us",
            "to the echo",
            "to the reference",
        ]);
        for workload in &self.workloads {
            for variant in self.variants.iter().copied() {
                let Some(beyond) = self.beyond_envoy(variant, workload) else {
                    continue;
                };
                let service = cpu_of(of(&self.samples, variant, workload), "service");
                let service = service.map_or(0.0, |service| service.median);
                let ratio = |to| {
                    let ratio = self.beyond_ratio(variant, to, workload);
                    ratio.map_or_else(String::new, |ratio| hundredths(ratio.median))
                };
                table.push([
                    workload.name.to_owned(),
                    variant.name().to_owned(),
                    format!("{:.0}", beyond.median - service),
                    format!("{service:.0}"),
                    range(&beyond),
                    ratio(Variant::PickerEcho),
                    ratio(Variant::ReferencePicker),
                ]);
            }
        }
        let shown = ["prompt", "", "both us", "to the echo", "to the reference"];
        let table = table.headline(&shown, |row| {
            row.text(1).starts_with(Variant::Isotherm.name())
        });
        Section::new("CPU time per request beyond plain Envoy").table(table)
    }

    fn by_process(&self, variant: Variant, workload: &Workload) -> String {
        let turns = || of(&self.samples, variant, workload);
        let labels = turns()
            .next()
            .into_iter()
            .flat_map(|turn| turn.cpu_micros.keys());
        let medians = labels.filter_map(|label| Some((label, cpu_of(turns(), label)?.median)));
        list(medians)
    }

    /// Bytes per request to the external processor and from it.
    fn ext_proc_bytes(&self, variant: Variant, workload: &Workload) -> String {
        let [to, from] = [0, 1].map(|direction: usize| {
            let turns = of(&self.samples, variant, workload);
            MedianRange::of(turns.filter_map(|turn| turn.ext_proc_bytes?.get(direction).copied()))
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
                let turns = || of(&self.streams, variant, workload);
                if turns().next().is_some() {
                    let cpu = PROCESSES.map(|process| {
                        let cpu = cpu_of(turns(), process);
                        cpu.as_ref().map_or_else(String::new, range)
                    });
                    let names = [variant.name(), workload.name].map(str::to_owned);
                    table.push(names.into_iter().chain(cpu));
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
        let Some(turn) = self.latencies.iter().find(|turn| turn.workload == name) else {
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
            let turns = || of(&self.latencies, variant, workload);
            if turns().next().is_none() {
                table.push([variant.name(), "does not keep up"]);
                continue;
            }
            let mut cells = vec![variant.name().to_owned()];
            for index in 0..PERCENTS.len() {
                let values = turns().filter_map(|turn| turn.latency_micros.get(index).copied());
                let median = MedianRange::of(values).map_or(f64::NAN, |range| range.median / 1e3);
                cells.push(hundredths(median));
            }
            for percent in PERCENTS {
                let added = self.added_ms(variant, workload, percent);
                cells.push(added.map_or_else(String::new, |added| {
                    format!("{:.2} ({:.2} to {:.2})", added.median, added.min, added.max)
                }));
            }
            let completed: u64 = turns().map(|turn| turn.completed).sum();
            cells.extend([
                completed.to_string(),
                self.failed(variant, workload).to_string(),
            ]);
            table.push(cells);
        }
        let load = match self.options.pickers {
            true => "of one client's requests".to_owned(),
            false => format!(
                "from the scheduled arrival, at {:.0} requests/s",
                turn.per_second
            ),
        };
        Section::new(format!("{name}: time to the end of the response, {load}")).table(table)
    }

    fn idle_usage(&self) -> Section {
        let rows = self.idle.iter().map(|idle| {
            let micros = idle.cpu_micros_per_s.iter();
            let micros = micros.map(|(label, micros)| (label, *micros));
            [idle.variant.name().to_owned(), list(micros)]
        });
        Section::new("CPU microseconds per second without requests")
            .table(Table::new(["", "by process"]).with_rows(rows))
    }

    /// Memory after the turns at saturation, then at the start, in the middle and at the end of the unique prompts.
    fn memory_use(&self) -> Section {
        let mut readings: Vec<&Memory> = self.memory_after.iter().collect();
        for variant in &self.variants {
            let of_variant = || {
                self.memory
                    .iter()
                    .filter(|memory| memory.variant == *variant)
            };
            let last = of_variant().next_back();
            let is_half =
                |memory: &&Memory| last.is_some_and(|last| memory.prompts * 2 >= last.prompts);
            let points = [of_variant().next(), of_variant().find(is_half), last];
            readings.extend(points.into_iter().flatten());
        }
        let rows = readings.into_iter().map(|memory| {
            let bytes = memory.resident_bytes.iter();
            let megabytes = bytes.map(|(label, bytes)| (label, (bytes / 1_000_000) as f64));
            let (name, prompts) = (memory.variant.name().to_owned(), memory.prompts.to_string());
            [name, prompts, list(megabytes)]
        });
        let table = Table::new(["", "prompts", "resident MB by process"]).with_rows(rows);
        Section::new("Resident memory").table(table)
    }
}

/// Values with their labels, as in `Envoy 90, service 10`.
fn list<'a>(values: impl Iterator<Item = (&'a &'static str, f64)>) -> String {
    let values = values.map(|(label, value)| format!("{label} {value:.0}"));
    values.collect::<Vec<String>>().join(", ")
}

fn range(range: &MedianRange) -> String {
    format!("{:.0} ({:.0} to {:.0})", range.median, range.min, range.max)
}

#[cfg(test)]
mod tests {
    use crate::measurements::tests::example;
    use crate::variant::Variant;

    /// Words of the report, a space between two.
    fn words(measurements: &super::PathMeasurements) -> String {
        let text = measurements.report().unwrap().text();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_tables_add_up_processes_and_compare_with_envoy_and_the_floor() {
        let text = words(&example());
        for line in [
            "Envoy 100 (90 to 105) Envoy 90, service 10 1.00",
            "Isotherm 200 (200 to 200) Envoy 190, service 10 2.00 1.25 1000 (1000 to 1000) 900 / 200",
            "Isotherm 0.57 1.15 2.30 0.35 (0.30 to 0.40)",
            "Isotherm 7 Envoy 50",
            "Isotherm service 2000",
            "1 clients, 1 replicas, CPUs free to sleep",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_variant_without_a_latency_did_not_keep_up() {
        let mut measurements = example();
        let latencies = &mut measurements.latencies;
        latencies.retain(|latency| latency.variant != Variant::Floor);
        assert!(words(&measurements).contains("floor does not keep up"));
    }
}
