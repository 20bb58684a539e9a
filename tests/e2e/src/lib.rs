//! What the end-to-end tests stand on, beside the harness: a scripted replica, clients, and a look at the service.
//!
//! The tests themselves are one program, `tests/e2e`. Each starts a stack of its own, with the Envoy that people run,
//! and waits for states and never for a time, so that a slow machine makes them slow and not red. A stack wants a
//! core or two, so only a few run at once: see [`turn`].

pub mod admin;
pub mod census;
pub mod client;
pub mod fixture;
pub mod liar;
pub mod load;
pub mod multiplex;
pub mod regions;
pub mod replay;
pub mod reply;
pub mod turn;
pub mod upstream;

pub use census::Census;
pub use client::{Answer, Client, chat};
pub use fixture::{as_shipped, patient, scripted, showing_decisions};
pub use liar::{Claim, Liar};
pub use load::Load;
pub use multiplex::Multiplex;
pub use replay::Replay;
pub use upstream::{Action, Upstream};

/// The model that every stack of these tests serves.
pub use isotherm_harness::MODEL;
/// Envoy's cluster of its replicas.
pub const CLUSTER: &str = "llama";
/// How long a test waits for a state at most. Nothing takes so long; this is for a machine that is busy with others.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
