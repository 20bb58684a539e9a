//! From a prompt to a compact chain of prefix hashes, and the headers that carry it.
//!
//! The filter and the external processor share this crate: the filter extracts, the service reads.
//! It has no clock, no I/O and no randomness, and it runs natively and inside Envoy's WASM sandbox.
//!
//! A body goes through it in one pass: the scanner finds members and strings, the walk knows from the shape's tables what
//! each of them is, the prompt is hashed section by section in blocks on a grid, and the blocks are folded into a chain in
//! the order in which engines render. [`Extractor`] is the entrance, [`Fingerprint::encode`] the exit.
#![no_std]
extern crate alloc;

mod api;
mod chain;
mod codec;
mod extract;
mod grid;
mod json;
mod leaves;
pub mod names;
mod number;
pub mod outcome;
mod sections;
pub mod session;
mod shape;
pub mod tokens;
mod xxh3;

pub use api::Api;
pub use chain::{BlockHash, Fingerprint};
pub use codec::{DecodeError, HEADER_BYTES_MAX};
pub use extract::{BodyError, Extraction, Extractor, MemberPaths};
pub use grid::grid_block_ends;
