//! Building blocks of the end-to-end tests beside the harness: scripted replicas, clients, and waiting for states.
//!
//! Each test starts a stack of its own, with the Envoy that is shipped. A test waits for a state and never asserts on
//! elapsed time, so a busy machine only makes it slower. A stack needs a core or two, so [`permit`] bounds how many run at
//! once.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod admin;
pub mod bodies;
#[expect(
    clippy::indexing_slicing,
    reason = "a missing member of a JSON value is null"
)]
pub mod browser;
pub mod client;
pub mod fixture;
pub mod http2_client;
pub mod lease_history;
pub mod lease_monitor;
pub mod load;
pub mod misbehaving_peer;
pub mod permit;
pub mod regions;
pub mod scripted_replica;
pub mod slice_server;

pub use client::{Client, HttpResponse, chat, expect_success, send};
pub use fixture::{engines, scripted, with_decision_header, with_long_timeouts};
pub use http2_client::Http2Client;
pub use isotherm_harness::GatewayShape;
pub use isotherm_harness::{MODEL, WAIT_MAX};
pub use lease_monitor::LeaseMonitor;
pub use load::Load;
pub use misbehaving_peer::MisbehavingPeer;
pub use scripted_replica::{Action, ScriptedReplica};

/// The Envoy cluster of the model's replicas.
pub const CLUSTER: &str = "llama";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
