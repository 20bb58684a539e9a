//! Any bytes as the configuration of the filter: every mistake is an error that names it, and none a panic.
#![no_main]

use isotherm_wasm_filter_core::PluginConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|json: &[u8]| {
    for name in ["isotherm.request", "isotherm.response"] {
        if let Err(error) = PluginConfig::parse_named(json, name) {
            assert!(!error.to_string().is_empty());
        }
    }
});
