//! The behaviour of the Isotherm filter, independent of its host.
//!
//! One module has two roles in a filter chain, which the plugin's configuration selects ([`PluginConfig`]):
//! - [`request`], in front of the external processor, turns the prompt into headers;
//! - [`response`], behind it, turns the response into one trailer.
//!
//! With a [`mod@decision_stream`] to the service the first role asks for decisions itself and reports how requests end; the
//! second role then has no part. The flows do no I/O: data of the proxy goes in; [`HeaderEdit`]s and requested byte ranges
//! come out. So the service uses the same code to explain a request.
//!
//! A third role, [`gate`], holds the headers where the host withholds the body of a request that the first role holds.
//! [`body_timer`] bounds the time of held bodies. [`body_watch`] and [`buffer_limit`] find out what no property of the host shows: whether the host passes the bodies of held
//! requests, and how many bytes it buffers.

pub mod body_timer;
pub mod body_watch;
pub mod buffer_limit;
pub mod cache_mask;
mod config;
pub mod decision_stream;
pub mod error_body;
pub mod gate;
mod headers;
mod json_object;
pub mod request;
pub mod response;

pub use config::{ConfigError, DecisionStreamConfig, PluginConfig, RequestConfig, ResponseConfig};
pub use headers::{HeaderEdit, Headers};
