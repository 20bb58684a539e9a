//! Every experiment, by name.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::bail;

use crate::context::Context;
use crate::document::Document;
use crate::{
    ablate, batch, dualmap_3, fidelity, regions, robustness, sageserve_8, sageserve_11,
    sageserve_15, scaling_weeks, skylb_8, skylb_9, skylb_10, tenants,
};

/// An experiment.
pub struct Experiment {
    /// Name on the command line.
    pub name: &'static str,
    /// Title of the report.
    pub title: &'static str,
    run: fn(&Context) -> Document,
}

const fn experiment(
    name: &'static str,
    title: &'static str,
    run: fn(&Context) -> Document,
) -> Experiment {
    Experiment { name, title, run }
}

/// Every experiment, in the order of `all`.
#[rustfmt::skip]
pub const EXPERIMENTS: &[Experiment] = &[
    experiment("skylb-8", "SkyLB, Figure 8: four workloads, seven systems", skylb_8::run),
    experiment("skylb-9", "SkyLB, Figure 9: blind pushing, a limit of outstanding requests, pending requests", skylb_9::run),
    experiment("skylb-10", "SkyLB, Figure 10: replicas against throughput, with and without forwarding", skylb_10::run),
    experiment("dualmap-3", "DualMap, Figure 3: effective request capacity and goodput over the request rate", dualmap_3::run),
    experiment("sageserve-8", "SageServe, Figure 8: interactive and non-interactive requests in separate pools and in one", sageserve_8::run),
    experiment("sageserve-11", "SageServe, Figure 11: instance hours of scaling strategies on a peak day", sageserve_11::figure_11),
    experiment("sageserve-13", "SageServe, Figure 13: latency and waste of scaling strategies", sageserve_11::figure_13),
    experiment("sageserve-15", "SageServe, Figure 15: orders of service", sageserve_15::run),
    experiment("scaling-weeks", "Scaling over weeks: hours and latency of every strategy", scaling_weeks::run),
    experiment("batch", "Batch work beside interactive requests", batch::run),
    experiment("tenants", "Tenants that burst", tenants::run),
    experiment("fidelity", "The aggregated model of weeks beside requests", fidelity::run),
    experiment("regions", "Forwarding between regions beside one central balancer", regions::run),
    experiment("robustness", "The default policy on engines as people run them", robustness::run),
    experiment("ablate", "What each constant and rule of the default policy carries", ablate::run),
];

/// The experiments of a name; `all` names all of them.
pub fn named(name: &str) -> anyhow::Result<Vec<&'static Experiment>> {
    let is_named = |one: &&Experiment| name == "all" || one.name == name;
    let experiments: Vec<&Experiment> = EXPERIMENTS.iter().filter(is_named).collect();
    if experiments.is_empty() {
        let line = |one: &Experiment| format!("  {:<14}{}\n", one.name, one.title);
        let lines: String = EXPERIMENTS.iter().map(line).collect();
        bail!(
            "no experiment is called {name:?}; there are:\n{lines}  all           every one of them"
        );
    }
    Ok(experiments)
}

/// Runs experiments one after the other and writes their files; returns the page of one, or the directory of several. `markdown` is a directory for
/// a result page of each.
pub fn run(
    experiments: &[&Experiment],
    context: &Context,
    output: &Path,
    markdown: Option<&Path>,
) -> anyhow::Result<PathBuf> {
    let mut page = output.to_path_buf();
    for experiment in experiments {
        eprintln!("==> {}: {}", experiment.name, experiment.title);
        let start = Instant::now();
        let mut document = (experiment.run)(context);
        (document.name, document.title) = (experiment.name, experiment.title);
        if let Some(telemetry) = context.effort.telemetry {
            let text = format!("Telemetry in every run: {}.", telemetry.as_str());
            document.about.push(text);
        }
        document.warn_of_cut_runs();
        let written = document.write(output)?;
        if experiments.len() == 1 {
            page = written;
        }
        if let Some(directory) = markdown {
            eprintln!("    {}", document.write_markdown(directory)?.display());
        }
        println!("{}", document.report()?.text());
        eprintln!("    {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(page)
}
