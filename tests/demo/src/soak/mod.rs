//! Load through real Envoys while processes and networks fail, and the invariants that must hold.
//!
//! A run is a warm-up and then rounds. In a round some faults begin and heal, the system recovers, and the run then measures
//! whether conversations find their prefixes in caches again. At the end the clients stop, and the system must become idle.
//!
//! - [`options`]: minutes and seed
//! - `fault_plan`: the faults of each round, drawn from the seed
//! - `fault_log`: the faults that happened, with their times
//! - `system`: replicas, services, Envoys, and the network between them; injects a fault and heals it
//! - `kind`, `prompt`: the kinds of requests, and what they send
//! - `exchange`, `clients`: send requests, and write `record`s
//! - `explanation`: whether the faults explain how a request ended
//! - `delivery`, `affinity`, `resources`, `idleness`: the invariants
//! - `run`: all of it in order
//! - [`report`]: the result

mod affinity;
mod clients;
mod delivery;
mod exchange;
mod explanation;
mod fault_log;
mod fault_plan;
mod idleness;
mod kind;
pub mod options;
mod prompt;
mod record;
pub mod report;
mod resources;
mod run;
mod system;
mod violation;

pub use options::SoakOptions;
pub use run::soak;
