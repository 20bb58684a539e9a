//! Building blocks of the end-to-end tests beside the harness: scripted replicas, clients, and waiting for states.
//!
//! Each test starts a stack of its own, with the Envoy that is shipped. A test waits for a state and never asserts on
//! elapsed time, so a busy machine makes it slower and no more. A stack wants a core or two, so [`permit`] lets only a few
//! run at once.

pub mod admin;
pub mod adoption_monitor;
pub mod client;
pub mod fixture;
pub mod http2_client;
pub mod load;
pub mod misbehaving_peer;
pub mod permit;
pub mod regions;
pub mod replaying_proxy;
pub mod scripted_replica;

pub use adoption_monitor::AdoptionMonitor;
pub use client::{Client, HttpResponse, chat, send};
pub use fixture::{scripted, with_decision_header, with_long_timeouts};
pub use http2_client::Http2Client;
pub use isotherm_harness::{MODEL, WAIT_MAX};
pub use load::Load;
pub use misbehaving_peer::{MisbehavingPeer, ReportedPool};
pub use replaying_proxy::ReplayingProxy;
pub use scripted_replica::{Action, ScriptedReplica};

/// The Envoy cluster of the model's replicas.
pub const CLUSTER: &str = "llama";
