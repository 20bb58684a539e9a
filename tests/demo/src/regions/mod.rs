//! Compares arrangements of several regions: forwarding, regions without it, and one central balancer.
//!
//! [`options`] defines the [`Trial`](options::Trial)s. Each has a client [`population`] and several [`deployment`]s that serve
//! the same clients. Clients are closed loops for a fixed time (as in SkyLB's evaluation), so throughput measures the
//! arrangement. [`trials`] hold the metrics and the [`timeline`] of the requests; [`report`] renders them.

pub mod client_counts;
pub mod compare;
mod conclusions;
mod cpu;
pub mod deployment;
mod engines;
pub mod options;
pub mod outage;
pub mod population;
pub mod report;
pub mod timeline;
pub mod trials;
pub mod up;
