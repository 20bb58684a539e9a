//! The papers' figures, run again in the simulator with the shipped policies.
//!
//! An experiment is a function from a [`Context`] (seeds, threads, trace) to a [`Document`]: it runs cases, each a set-up and a
//! workload, with every seed, and computes tables, the paper's numbers beside the measured ones, and conclusions. A report
//! depends on no clock, no thread count and no machine: the same seed gives the same bytes.
//!
//! - [`registry`]: every experiment by name; [`cli`]: `isotherm-sim experiment`
//! - `context`, `rows`, `figures`, `load`: runs and their figures
//! - `document`, `explain`, `paper`: the report
//! - `workloads`: shared by several experiments
//! - `scaling`: shared by the experiments after SageServe
//! - every other module: an experiment

pub mod cli;
mod context;
mod document;
pub mod registry;

mod ablate;
mod batch;
mod dualmap_3;
mod explain;
mod fidelity;
mod figures;
mod load;
mod paper;
mod regions;
mod robustness;
mod rows;
mod sageserve_11;
mod sageserve_15;
mod sageserve_8;
mod scaling;
mod scaling_weeks;
mod seeds;
mod skylb_10;
mod skylb_8;
mod skylb_9;
mod tenants;
mod workloads;

pub use context::{Context, Effort, Seeds};
pub use document::Document;
