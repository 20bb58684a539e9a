//! Any bytes as an outcome trailer: the parser survives, and what it accepts says the same after a round trip.
#![no_main]

use isotherm_fingerprint::outcome::Outcome;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    if let Ok(outcome) = Outcome::parse(value) {
        assert_eq!(Outcome::parse(outcome.encode().as_bytes()), Ok(outcome));
    }
});
