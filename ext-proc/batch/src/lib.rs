//! The durable queue of non-interactive requests.
//!
//! Hours cannot be held on HTTP: Envoy keeps each body in memory, and connections break. So the lines of a batch wait in a
//! database ([`store`]), and workers send each to Envoy when the gateway has spare capacity for it ([`worker`], [`pace`]).
//! Clients use OpenAI's batch API ([`api`]), or `isotherm batch run` for one file.
//!
//! | modules | purpose |
//! | --- | --- |
//! | [`mod@line`], [`splitter`], [`endpoint`], [`completion_window`], [`limits`] | what an input file may have |
//! | [`output`] | lines of output and error files |
//! | [`pace`] | pure: how fast to send, and which lines first |
//! | [`store`] | the state, in SQLite or PostgreSQL |
//! | [`submission`] | a batch from a file of this machine |
//! | [`gateway`] | requests to Envoy, and what their answers mean |
//! | [`worker`] | claims, sends, records; validates and ends batches |

pub mod api;
pub mod completion_window;
pub mod endpoint;
pub mod gateway;
mod id;
pub mod limits;
pub mod line;
pub mod output;
pub mod pace;
pub mod splitter;
pub mod store;
pub mod submission;
pub mod worker;
