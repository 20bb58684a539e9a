//! Load through real Envoys while processes and networks fail, and the invariants that must hold.
//!
//! A run is a warm-up and then rounds. In a round some faults begin and heal, the system recovers, and the run then measures
//! whether conversations find their prefixes in caches again. At the end the clients stop, and the system must become idle.
//!
//! Five invariants hold:
//!
//! - Each request gets its answer, or a reason that a fault of that time explains. A connection breaks without a fault of its Envoy only
//!   after the first byte, when a replica dies.
//! - No request is answered twice, or by another's answer. Envoy retries once, so two engines may compute it.
//! - The service, Envoy and the engines count no request at the end.
//! - Memory and file descriptors of processes that survive stay flat. The first service and the first Envoy are never killed.
//! - The cached share after a recovery is at most 15 points below that of the warm-up.
//!
//! A replica that loses single requests shows signs of life, so the service abandons none of them. A replica that never responds is
//! therefore started again, as a supervisor does. Faults come in rounds: a measurement of recovery needs a time without faults.
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
