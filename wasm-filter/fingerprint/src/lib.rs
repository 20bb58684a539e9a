//! Computes the fingerprint of a prompt, a chain of block hashes, and encodes it in headers.
//!
//! The filter extracts fingerprints; the service reads them with the same crate. The crate has no clock, no I/O and no
//! randomness, and it runs natively and inside Envoy's WASM sandbox.
//!
//! A body passes through in one pass. The scanner finds members and strings, and the tables of the API say what each of them
//! is. The prompt is hashed section by section in blocks on a grid, and the blocks are folded into a chain in the order in
//! which engines render. [`Extractor`] is the entry point, [`Fingerprint::encode`] the exit.
#![no_std]
extern crate alloc;

mod api;
mod chain;
mod codec;
mod extract;
mod form;
mod grid;
mod json;
mod leaves;
pub mod names;
mod number;
pub mod objectives;
pub mod outcome;
pub mod paths;
mod sections;
pub mod session;
mod shape;
pub mod stored_response;
pub mod tenant;
pub mod tokens;
mod unread_model;
mod xxh3;

pub use api::{Api, is_anthropic, model_in_path};
pub use chain::{BlockHash, Fingerprint};
pub use codec::{DecodeError, HEADER_BYTES_MAX};
pub use extract::{Extraction, Extractor, MemberPaths};
pub use form::FormReader;
pub use grid::grid_block_ends;
pub use json::BodyError;
pub use unread_model::UnreadModel;
