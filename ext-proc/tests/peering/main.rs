//! Links between services: trust, failures and bounds, over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod authority;
mod bounds;
mod faults;
mod plaintext;
mod raw;
mod reload;
mod service;
mod trust;
