//! The gateway: Envoy, to which the workers send the lines, and the service's own view of the batch work that it holds.

mod answer;
mod client;
mod status;

pub use answer::{Answer, Disposition};
pub use client::{Gateway, GatewayConfig, GatewayError, LineRequest};
pub use status::StatusPage;
