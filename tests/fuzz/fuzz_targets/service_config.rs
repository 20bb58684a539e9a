//! Any text as the configuration of the service: every mistake is an error that names it, and none a panic.
#![no_main]

use isotherm_ext_proc::config::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(errors) = parse(text) {
        assert!(!errors.to_string().is_empty());
    }
});
