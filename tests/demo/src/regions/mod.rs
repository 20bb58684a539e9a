//! Several regions: what forwarding gains over regions that keep to themselves, and over one central balancer.
//!
//! [`options`] says what is run: [`Trial`](options::Trial)s, each with the clients of a [`crowd`] and several
//! [`world`]s that serve the same ones. Clients are closed loops for a fixed time (as in SkyLB's evaluation), so
//! throughput is what the arrangement makes of the replicas. [`record`]s of all requests are turned into [`figures`]
//! and a [`timeline`]; [`report`] says what follows.

pub mod compare;
pub mod crowd;
mod engines;
pub mod figures;
pub mod levels;
mod machine;
pub mod options;
pub mod record;
pub mod report;
pub mod talk;
pub mod timeline;
pub mod up;
pub mod world;
