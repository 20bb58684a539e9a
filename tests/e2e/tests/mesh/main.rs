//! Real control planes translate the manifests of `deploy/`, and an Envoy that they configure serves requests.
//!
//! `cargo xtask test mesh` runs these tests in a network of their own: pods have addresses that EndpointSlices accept, and
//! every default port is free. `cargo xtask test` does so, too, where programs of a mesh are built. Elsewhere, and without a
//! program, each test is skipped and says why.

mod filter_image;
mod gateways;
mod manifests;
mod workload;
