//! Several regions: services that hear each other over loopback, fall silent, and look after each other's replicas.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test relies on and does not get is its failure"
)]

#[allow(dead_code, reason = "every test uses its own part")]
#[path = "../peering/authority.rs"]
mod authority;
#[allow(unreachable_pub, reason = "a module of the harness")]
#[path = "../../../tests/harness/src/etcd.rs"]
#[allow(
    dead_code,
    reason = "the harness, which suspends servers, shares the module"
)]
mod etcd;
#[path = "../fake/mod.rs"]
pub mod fake;
mod forwarding;
mod recovery;
mod siblings;
mod trust;
mod world;
