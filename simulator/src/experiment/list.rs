//! Every experiment, by name.

use core::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::document::{Document, write_index};
use super::lab::Lab;
use super::{
    assumptions, default, dualmap_1, dualmap_3, dualmap_4, dualmap_5, dualmap_12, dualmap_13,
    skylb_8, skylb_9, skylb_10,
};

/// An experiment.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows, in a line.
    pub shows: &'static str,
    /// Runs it.
    pub run: fn(&Lab) -> anyhow::Result<Document>,
}

/// Every experiment, in the order of `all`.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "skylb-8",
        shows: "SkyLB, Figure 8: four workloads, seven systems, three regions",
        run: skylb_8::run,
    },
    Experiment {
        name: "skylb-9",
        shows: "SkyLB, Figure 9: blind pushing, a limit of outstanding requests, pending requests",
        run: skylb_9::run,
    },
    Experiment {
        name: "skylb-10",
        shows: "SkyLB, Figure 10: replicas against throughput, with and without forwarding",
        run: skylb_10::run,
    },
    Experiment {
        name: "dualmap-1",
        shows: "DualMap, Figure 1: cache hits against load balance",
        run: dualmap_1::run,
    },
    Experiment {
        name: "dualmap-3",
        shows: "DualMap, Figure 3: effective request capacity and goodput over the request rate",
        run: dualmap_3::run,
    },
    Experiment {
        name: "dualmap-4",
        shows: "DualMap, Figure 4: TTFT and end-to-end time over the request rate",
        run: dualmap_4::run,
    },
    Experiment {
        name: "dualmap-5",
        shows: "DualMap, Figure 5: its parts switched off",
        run: dualmap_5::run,
    },
    Experiment {
        name: "dualmap-12",
        shows: "DualMap, Figure 12: replicas that come and go",
        run: dualmap_12::run,
    },
    Experiment {
        name: "dualmap-13",
        shows: "DualMap, Figure 13a: goodput from 8 to 32 replicas",
        run: dualmap_13::run,
    },
    Experiment {
        name: "assumptions",
        shows: "DualMap: which assumption makes the difference",
        run: assumptions::run,
    },
    Experiment {
        name: "default",
        shows: "isotherm on every standard workload, against every other policy and the oracle",
        run: default::run,
    },
];

/// There is no such experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "no experiment is called {:?}; there are:", self.0)?;
        for experiment in EXPERIMENTS {
            writeln!(f, "  {:<14}{}", experiment.name, experiment.shows)?;
        }
        write!(f, "  {:<14}every one of them", "all")
    }
}

impl core::error::Error for Unknown {}

/// The experiments of a name; `all` is the name of all.
///
/// # Errors
/// When there is none of that name.
pub fn named(name: &str) -> Result<Vec<&'static Experiment>, Unknown> {
    if name == "all" {
        return Ok(EXPERIMENTS.iter().collect());
    }
    let found = EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name);
    found
        .map(|found| vec![found])
        .ok_or_else(|| Unknown(name.to_owned()))
}

/// Runs experiments one after the other and writes their files; returns the page to open.
///
/// # Errors
/// When one cannot be run or a file cannot be written.
pub fn run(experiments: &[&Experiment], lab: &Lab, output: &Path) -> anyhow::Result<PathBuf> {
    let mut documents = Vec::new();
    let mut page = output.to_path_buf();
    for experiment in experiments {
        eprintln!("==> {}: {}", experiment.name, experiment.shows);
        let start = Instant::now();
        let mut document = (experiment.run)(lab)?;
        document.tell_of_cut_runs();
        page = document.write(output)?;
        println!("{}", document.report()?.text());
        eprintln!("    {:.1} s", start.elapsed().as_secs_f64());
        documents.push(document);
    }
    if documents.len() > 1 {
        page = write_index(output, &documents)?;
    }
    Ok(page)
}
