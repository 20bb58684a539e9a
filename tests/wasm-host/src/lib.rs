//! Runs the built filter in an interpreter, with a host that imitates Envoy.
//!
//! The tests run the very module that Envoy loads: its imports, its memory, its SIMD code. They compare it with the same code
//! built natively. An interpreter builds in seconds and needs nothing installed; the end-to-end tests cover Envoy itself.

mod filter;
mod host;
mod imports;

pub use filter::{Action, Filter};
pub use host::{Headers, Host, headers};

use std::path::PathBuf;

/// The variable that names another module than the usual one.
const MODULE_VARIABLE: &str = "ISOTHERM_FILTER_WASM";

/// The path of the built module.
pub fn module_path() -> PathBuf {
    let usual = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/filter/isotherm_filter.wasm"
    );
    std::env::var_os(MODULE_VARIABLE)
        .unwrap_or_else(|| usual.into())
        .into()
}
