//! The wire between services: who is let in, what is made of failures, and that everything has its bounds.

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
