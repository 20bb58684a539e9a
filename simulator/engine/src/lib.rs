//! A simulated inference engine that behaves as vLLM does, for everyone without a GPU.
//!
//! [`model`] is the behaviour, pure and in virtual time. [`text`] turns requests into tokens and blocks. [`http`] puts an
//! OpenAI-compatible server around both; [`cli`] reads its command line.

pub mod cli;
pub mod http;
pub mod model;
pub mod text;
