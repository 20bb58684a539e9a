//! What the Isotherm filter does, free of the host that it runs in.
//!
//! One module, two roles in one filter chain, told apart by the plugin's configuration ([`Plugin`]):
//! - [`request`] stands in front of the external processor: it turns the prompt into headers;
//! - [`response`] stands behind it: it turns the answer into one trailer.
//!
//! With a [`mod@decision_stream`] to the service the first role asks it itself, and tells how it ended: the second has no part in that.
//!
//! All are flows without I/O: what the proxy says goes in, [`Edit`]s and byte ranges that they would like to see come
//! out. A trait for the host was tried first and rejected: its fake had to imitate when a proxy allows which call,
//! and that is better seen in the shell, by a test of the finished module. Here nothing reads a clock, an
//! address or a buffer by itself, so that the service can use the same code to explain a request.

mod config;
pub mod decision_stream;
mod headers;
pub mod request;
pub mod response;

pub use config::{ConfigError, DecisionStreamConfig, Plugin, RequestConfig, ResponseConfig};
pub use headers::{Edit, Headers};
