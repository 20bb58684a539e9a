//! Starts Envoy, the service and simulated engines on free loopback ports, and stops them.
//!
//! The demo, the benches and the end-to-end tests use the same [`Stack`]. It runs `envoy/standalone.yaml` itself: the file is
//! parsed, a few values in it are replaced, and everything else is as shipped. Rejected: a template or a second copy for
//! tests, because then no test would run the shipped file.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use isotherm_harness::{Pool, Stack};
//!
//! let mut stack = Stack::builder("example").pool(Pool::new("llama-3.1-8b").replicas(2)).start().await?;
//! println!("{}", stack.url("/v1/models"));
//! stack.service().process()?.suspend()?;
//! stack.service().process()?.resume()?;
//! stack.engine_mut(0)?.kill()?;
//! # Ok(()) }
//! ```
//!
//! [`Regions`] is several stacks that are peers, with the network between them: `envoy/region.yaml`, certificates, and a
//! [`RegionLink`] from each region to each other that can be slow, silent or cut.
//!
//! [`Mesh`] has an Envoy that a real control plane (istiod, Envoy Gateway) configures by the manifests of `deploy/`.
//!
//! A function that fails returns an error with its context: the missing program and the command that builds it, or the end
//! of the log of a program that did not become ready.
//!
//! Every program ends when its stack is dropped, and also when this process ends without dropping it (see [`process`]).
//! Logs stay in `target/stacks` until the next run of the same name.

mod bootstrap;
pub mod control_plane;
mod directory;
pub mod document;
mod endpoints;
pub mod engine;
pub mod envoy;
mod etcd;
pub mod faulty_link;
mod filters;
mod gateway_shape;
mod median;
pub mod mesh;
pub mod peers;
pub mod pool;
pub mod port;
pub mod postgres;
pub mod process;
pub mod regions;
mod registry;
pub mod service;
pub mod shutdown;
pub mod span_collector;
pub mod stack;
pub mod synthetic_text;
mod tcp_server;
pub mod tools;
mod traffic;
mod wait;

pub use control_plane::ControlPlane;
pub use document::Document;
pub use engine::{Engine, Engines};
pub use envoy::Envoy;
pub use etcd::Etcd;
pub use faulty_link::{FaultyLink, NetworkConditions};
pub use gateway_shape::GatewayShape;
pub use isotherm_certificates::Authority;
pub use median::MedianRange;
pub use mesh::{Mesh, MeshGateway};
pub use pool::{EngineOptions, Pool};
pub use postgres::Postgres;
pub use regions::{LEASE_MS, RegionLink, Regions, RegionsBuilder};
pub use registry::Registry;
pub use service::Service;
pub use span_collector::SpanCollector;
pub use stack::{Stack, StackBuilder};
pub use tcp_server::TcpServer;
pub use tools::Tools;
pub use traffic::ServiceTraffic;
pub use wait::{WAIT_MAX, wait_for, wait_until};

/// The model that every pool of the demo, the benches and the tests serves.
pub const MODEL: &str = "llama-3.1-8b";
