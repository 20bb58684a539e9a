//! Any bytes as a fingerprint header and as a token header: the decoders survive, and what they accept has one spelling.
#![no_main]

use isotherm_fingerprint::{Fingerprint, tokens};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|value: &[u8]| {
    if let Ok(fingerprint) = Fingerprint::decode(value) {
        assert_eq!(fingerprint.encode().as_bytes(), value);
        let depth = fingerprint.blocks().len();
        assert!(fingerprint.bytes_at(depth) <= fingerprint.total_bytes());
        assert!((0.0..=1.0).contains(&fingerprint.share_at(depth)));
    }
    if let Some(counts) = tokens::parse(value) {
        assert_eq!(
            tokens::parse(tokens::encode(counts).as_bytes()),
            Some(counts)
        );
    }
});
