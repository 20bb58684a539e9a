//! Tests of the policies, each in a router: all of them by the same scripts, and some by their own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests stop at what they did not expect, and count in small numbers"
)]

mod affinity;
mod cache_aware;
mod conformance;
mod own_policy;
#[path = "../../../router/tests/router/support/mod.rs"]
mod support;
mod warm_unless_busy;
mod weighing;
