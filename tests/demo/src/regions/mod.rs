//! Several regions: what forwarding gains over regions that keep to themselves, and over one central balancer.
//!
//! [`options`] says what is run: [`Trial`](options::Trial)s, each with the clients of a [`population`] and several
//! [`deployment`]s that serve the same ones. Clients are closed loops for a fixed time (as in SkyLB's evaluation), so
//! throughput is what the arrangement makes of the replicas. [`record`]s of all requests are turned into [`figures`]
//! and a [`timeline`]; [`report`] says what follows.

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
pub mod up;
