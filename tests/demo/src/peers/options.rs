//! Options of a comparison with other systems.

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use isotherm_engine::model::Preset;
use isotherm_harness::peers::PythonRouter;
use isotherm_harness::{EngineOptions, MODEL, Pool};
use isotherm_policies::PolicyName;
use isotherm_simulator::workload::conversation;
use isotherm_simulator::workload::trace::Trace;

use crate::report::ScenarioSummary;
use crate::scenario::{Push, Scenario, speedup};
use crate::workload::Workload;

/// A system that routes requests to engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum System {
    /// Isotherm as delivered
    Isotherm,
    /// SGLang's router (PyPI: sglang-router)
    SglangRouter,
    /// The Shepherd model gateway (PyPI: smg)
    Smg,
    /// vLLM's router (PyPI: vllm-router)
    VllmRouter,
    /// The reference endpoint picker of the Gateway API Inference Extension (`cargo xtask mesh-tools`)
    ReferencePicker,
}

/// Command-line options of a comparison.
#[derive(Args, Clone, Debug)]
pub struct CompareOptions {
    /// A trace in Mooncake's format, or of `isotherm record` [default: a synthetic twin of the public conversation trace]
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Requests of the trace to play, counted from 0, without the last
    #[arg(long, value_name = "FROM-TO", default_value = "0-600", value_parser = rows)]
    pub rows: Range<usize>,
    /// Factor by which engines and arrivals are faster than real time
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speedup)]
    pub engine_speed: f64,
    /// Factor on the trace's arrival rate, at the engines' speed
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = speedup)]
    pub arrival_rate: f64,
    /// Model and hardware of the engines
    #[arg(long, value_name = "PRESET", default_value = "llama-3.1-8b-2xa100")]
    pub engine: Preset,
    /// Engines
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub replicas: u16,
    /// Systems to compare (repeatable, or with commas) [default: all that are installed]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub system: Vec<System>,
    /// Plays all systems at the same time instead of one after the other, each with engines of its own. At life speed the
    /// engines leave this machine mostly idle
    #[arg(long)]
    pub at_once: bool,
    /// Runs of each system, all at the same time, each with engines of its own. The figures are of the requests of all runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=8))]
    pub runs: u16,
    /// Isotherm's policy
    #[arg(long, value_name = "NAME", default_value_t = PolicyName::Isotherm)]
    pub policy: PolicyName,
    /// Isotherm's push mode
    #[arg(long, value_enum, default_value = "pending")]
    pub push: Push,
    /// Python that has the routers
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,
    /// Seed of the synthetic trace
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl System {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Isotherm => "Isotherm",
            Self::SglangRouter => "sglang-router",
            Self::Smg => "smg",
            Self::VllmRouter => "vllm-router",
            Self::ReferencePicker => "reference picker",
        }
    }

    /// Release of a Python package; `None` for a program that this repository pins or is.
    pub(super) fn version(self, options: &CompareOptions) -> Option<String> {
        let router = match self {
            Self::Isotherm | Self::ReferencePicker => return None,
            Self::SglangRouter => PythonRouter::Sglang,
            Self::Smg => PythonRouter::Smg,
            Self::VllmRouter => PythonRouter::Vllm,
        };
        router.version(&options.python)
    }
}

impl CompareOptions {
    /// The systems, Isotherm first.
    pub(super) fn systems(&self) -> Vec<System> {
        let all = System::value_variants().iter();
        let is_named = |system: &&System| self.system.is_empty() || self.system.contains(system);
        all.filter(is_named).copied().collect()
    }

    /// Reads or draws the trace.
    pub(super) fn scenario(&self) -> anyhow::Result<Scenario> {
        let (trace, source) = match &self.trace {
            Some(path) => {
                let name = path.file_name().context("the trace is no file")?;
                let trace = Trace::open(path, Some(self.rows.end))?;
                (trace, name.to_string_lossy().into_owned())
            }
            None => {
                let trace = conversation::generate(conversation::HOUR_S, self.seed);
                (trace, "the synthetic conversation trace".to_owned())
            }
        };
        let lines = trace.lines().get(self.rows.clone());
        let lines = lines.with_context(|| {
            let count = trace.lines().len();
            format!("{source} has {count} requests; choose --rows within them")
        })?;
        ensure!(!lines.is_empty(), "no request is chosen; see --rows");
        let speed = self.engine_speed * self.arrival_rate;
        let workload = Workload::replay(&Trace::new(lines.to_vec()), speed);
        let replicas = usize::from(self.replicas);
        let (first, last) = (self.rows.start, self.rows.end);
        let summary = ScenarioSummary {
            name: "peers".into(),
            description: format!(
                "Requests {first} to {last} of {source}, at {} of its arrival rate",
                self.arrival_rate
            ),
            requests: workload.requests(),
            replicas,
            engine: self.engine.name().into(),
            speed: self.engine_speed,
            engines_per_replica: 1,
            seed: self.seed,
        };
        let engine = EngineOptions {
            preset: self.engine.name().into(),
            speed: self.engine_speed,
            arguments: Vec::new(),
        };
        Ok(Scenario {
            workload,
            pool: Pool::new(MODEL).replicas(replicas).engine(engine),
            summary,
        })
    }
}

/// Parses `FROM-TO`.
fn rows(text: &str) -> Result<Range<usize>, String> {
    let numbers = text.split_once('-').and_then(|(from, to)| {
        let range = from.parse().ok()?..to.parse().ok()?;
        (range.start < range.end).then_some(range)
    });
    numbers.ok_or_else(|| "two numbers, the first smaller: 0-600".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: CompareOptions,
    }

    fn parse(line: &str) -> Result<CompareOptions, clap::Error> {
        let words = std::iter::once("compare").chain(line.split_whitespace());
        CommandLine::try_parse_from(words).map(|parsed| parsed.options)
    }

    #[test]
    fn isotherm_comes_first_and_every_other_system_is_compared_by_default() {
        let names = |line| -> Vec<_> {
            let systems = parse(line).unwrap().systems();
            systems.into_iter().map(System::name).collect()
        };
        assert_eq!(names("").len(), 5);
        assert_eq!(
            names("--system smg,isotherm --system vllm-router"),
            ["Isotherm", "smg", "vllm-router"]
        );
    }

    #[test]
    fn rows_are_a_window_of_the_trace() {
        let scenario = |line| parse(line).unwrap().scenario();
        let whole = scenario("--rows 0-30").unwrap().workload;
        let window = scenario("--rows 10-30").unwrap().workload;
        assert_eq!(window.requests(), 20);
        let text = |workload: &Workload, index: usize| {
            workload.conversations[index].turns[0].content.clone()
        };
        assert_eq!(text(&window, 0), text(&whole, 10));
        assert!(window.conversations[0].at.is_zero(), "starts at once");
        let error = scenario("--rows 10-99999999").unwrap_err().to_string();
        assert!(error.contains("choose --rows"), "{error}");
        for wrong in ["--rows 5", "--rows 7-7", "--rows a-b"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.contains("two numbers"), "{error}");
        }
    }
}
