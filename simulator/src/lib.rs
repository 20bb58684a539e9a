//! The simulator: the routing core exactly as shipped, the engine model of `simulator/engine`, and clients, in virtual time.
//!
//! - [`workload`]: what the clients ask, and when
//! - [`prompt`]: prompts without text; [`chain`]: as the router's fingerprint and as the engine's blocks
//! - [`setup`]: everything else of a run: fleet, network, who decides
//! - [`run`]: the run itself
//! - [`compare`]: which policy for one's own traffic, and what it would save
//! - [`experiment`]: the headline tables of the papers, run again
//! - [`record`]: what a run leaves behind; [`summary`]: its figures

pub mod chain;
mod client;
pub mod compare;
pub mod experiment;
pub mod network;
pub mod prompt;
pub mod record;
pub mod setup;
pub mod summary;
pub mod workload;
mod world;

pub use network::Network;
pub use record::{Outcome, ReplicaSample, ReplicaTotals, RequestRecord, Sample};
pub use setup::{Action, Balancing, Change, RegionSetup, ReplicaSetup, Setup};
pub use summary::Summary;
pub use world::run;
