//! The routing core of Isotherm: no clock, no socket, no randomness of its own.
//!
//! One `Router` serves one pool (the replicas of one model in one region). It is *sans I/O*: time and events
//! come in as arguments, effects come out of `Router::poll_effect`. The service and the simulator are two
//! drivers of the same calls.

mod effect;
mod event;
mod time;

pub use effect::{Decision, Effect, Reason, RejectReason};
pub use event::{Event, Load, ReplicaId, ReplicaSpec, Request, RequestId, SessionKey, Tier};
pub use time::Time;
