//! Compares arrangements of several regions: forwarding, regions without it, and one central balancer.
//!
//! [`options`] defines the [`Trial`](options::Trial)s. Each has the clients of a [`population`] and several
//! [`deployment`]s that serve the same clients. Clients are closed loops for a fixed time (as in SkyLB's evaluation), so
//! throughput measures the arrangement. [`record`]s of all requests become [`metrics`] and a [`timeline`]; [`report`]
//! renders them.

pub mod client_counts;
pub mod compare;
mod conclusions;
mod cpu;
pub mod deployment;
pub mod document_chat;
mod engines;
pub mod metrics;
pub mod options;
pub mod population;
pub mod record;
pub mod report;
pub mod timeline;
pub mod trials;
pub mod up;
