//! Runs the built filter in an interpreter, with a host that imitates Envoy.
//!
//! What is tested here is the module that Envoy loads, bytes and all: its imports, its memory, its SIMD code, and
//! that it agrees with the same code built natively. An interpreter, because it builds in seconds and needs nothing
//! installed; how Envoy itself behaves around the module is the matter of the end-to-end tests.

mod filter;
mod host;
mod imports;

pub use filter::{Action, Filter};
pub use host::{Headers, Host};

use std::path::PathBuf;

/// The variable that names another module than the usual one.
const MODULE_VARIABLE: &str = "ISOTHERM_FILTER_WASM";

/// Where the built module lies.
#[must_use]
pub fn module_path() -> PathBuf {
    std::env::var_os(MODULE_VARIABLE).map_or_else(
        || {
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("../../target/filter/isotherm_filter.wasm")
        },
        PathBuf::from,
    )
}
