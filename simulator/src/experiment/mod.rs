//! Experiments: the headline tables of the papers, run again with our policies.
//!
//! An experiment runs cases (a set-up, a workload, seeds) in a [`lab`], and makes a [`document`] of the rows: charts as
//! the paper draws them, the [`paper`]'s own numbers beside ours, and sentences computed from the data. Nothing in a report
//! depends on the clock, on the number of threads or on the machine: the same seed gives the same bytes.
//!
//! One file an experiment, each a function from the lab to a document; [`list`] knows them all.

pub mod cli;
pub mod document;
pub mod jobs;
pub mod lab;
pub mod list;
pub mod load;
pub mod paper;
pub mod picture;
pub mod rows;

mod assumptions;
mod default;
mod dualmap;
mod dualmap_1;
mod dualmap_12;
mod dualmap_13;
mod dualmap_3;
mod dualmap_4;
mod dualmap_5;
mod explain;
mod figure;
mod skylb_10;
mod skylb_8;
mod skylb_9;
mod workloads;

pub use document::Document;
pub use lab::{Effort, Lab};
pub use list::{EXPERIMENTS, Experiment, Unknown};
