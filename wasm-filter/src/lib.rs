//! The Isotherm filter: a proxy-wasm module for Envoy.
