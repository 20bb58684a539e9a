//! The simulator: the routing core exactly as shipped, the engine model of `simulator/engine`, and clients, in virtual time.
//!
//! - [`workload`]: the requests of the clients, and their times
//! - [`prompt`]: prompts without text; [`chain`]: their hashes, for the router and for the engine
//! - [`setup`]: everything else of a run: fleet, network, arrangement of routers
//! - [`run`]: a run
//! - [`telemetry`]: what engines tell the service
//! - [`record`]: the result of a run; [`summary`]: its figures
//! - [`compare`]: compares policies on the user's traffic; [`cli`]: the command line of the comparison
//! - [`scaling`]: how many replicas, over days and weeks
//! - [`jobs`]: many runs on a few threads
//!
//! The papers' figures are in `simulator/experiments`, which also builds the binary `isotherm-sim`.

pub mod chain;
pub mod cli;
mod client;
pub mod compare;
pub mod jobs;
pub mod network;
pub mod prompt;
pub mod record;
pub mod scaling;
pub mod setup;
mod simulation;
pub mod summary;
pub mod telemetry;
pub mod workload;

pub use network::Network;
pub use record::{Outcome, ReplicaSample, ReplicaTotals, RequestRecord, Sample};
pub use setup::{Action, Arrangement, Change, RegionSetup, ReplicaSetup, Setup};
pub use simulation::{LiveRun, RegionLoad, run};
pub use summary::{GOODPUT_SLOS, Summary};
pub use telemetry::Telemetry;
