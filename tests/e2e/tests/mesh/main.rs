//! Real control planes translate the manifests of `deploy/`, and an Envoy that they configure serves requests.
//!
//! `cargo xtask test mesh` runs these tests in a network of their own: pods have addresses that EndpointSlices accept, and
//! every default port is free. Elsewhere, and without a program of the mesh, each test is skipped and says why.

#![expect(
    clippy::indexing_slicing,
    reason = "a member that is missing fails the test"
)]

mod envoy_gateway;
mod istio;
mod manifests;
mod world;
