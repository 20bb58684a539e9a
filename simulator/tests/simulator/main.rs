//! Tests of the simulator: runs of all policies, faults, regions, scaling, and the figures that workloads imitate.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops where something is wrong"
)]

mod changes;
mod compare;
mod faults;
mod oracle;
mod probes;
mod published_figures;
mod random;
mod regions;
mod scaling;
mod simulation;
mod support;
mod workloads;
