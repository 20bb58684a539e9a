//! Any bytes as a message of another service: what the decoder accepts stays the same after a round trip.
#![no_main]

use isotherm_ext_proc::fuzzing::decode_peer_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((message, encoded)) = decode_peer_message(bytes) {
        let again = decode_peer_message(&encoded.unwrap()).map(|(message, _)| message);
        assert_eq!(again, Some(message));
    }
});
