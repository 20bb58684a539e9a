//! What the end-to-end tests stand on, beside the harness: a scripted replica, clients, and a look at the service.
//!
//! The tests themselves are one program, `tests/e2e`. Each starts a stack of its own, with the Envoy that people run,
//! and waits for states and never for a time, so that a slow machine makes them slow and not red. A stack wants a
//! core or two, so only a few run at once: see [`turn`].

pub mod admin;
pub mod adoption_monitor;
pub mod client;
pub mod engine_response;
pub mod fixture;
pub mod http2_client;
pub mod load;
pub mod misbehaving_peer;
pub mod permit;
pub mod regions;
pub mod replaying_proxy;
pub mod scripted_replica;

pub use adoption_monitor::AdoptionMonitor;
pub use client::{Client, HttpResponse, chat};
pub use fixture::{as_shipped, scripted, with_decision_header, with_long_timeouts};
pub use http2_client::Http2Client;
pub use load::Load;
pub use misbehaving_peer::{MisbehavingPeer, ReportedPool};
pub use replaying_proxy::ReplayingProxy;
pub use scripted_replica::{Action, ScriptedReplica};

/// The model that every stack of these tests serves.
pub use isotherm_harness::MODEL;
/// Envoy's cluster of its replicas.
pub const CLUSTER: &str = "llama";
/// How long a test waits for a state at most. Nothing takes so long; this is for a machine that is busy with others.
pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(60);
