//! The session key as a header value.
//!
//! Clients choose session keys, so a key may contain any bytes. The encoding percent-encodes all but visible ASCII characters
//! and replaces a long key by its digest. Envoy's ring hash and the service only compare keys and never need the original.

use alloc::format;
use alloc::string::String;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::leaves::Digest;

/// The longest session key that is kept, and the longest header value, in bytes.
pub const SESSION_BYTES_MAX: usize = 256;

/// The ASCII characters that are percent-encoded; every byte outside ASCII is.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The header value of a session key: at most [`SESSION_BYTES_MAX`] visible ASCII characters.
pub fn encode(key: &[u8]) -> String {
    if key.len() <= SESSION_BYTES_MAX {
        let value: String = percent_encode(key, ESCAPED).collect();
        if value.len() <= SESSION_BYTES_MAX {
            return value;
        }
    }
    hex(Digest::of(key))
}

/// A digest as 16 hexadecimal digits.
pub(crate) fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_characters_are_kept() {
        assert_eq!(encode(b"user-42/a:b"), "user-42/a:b");
    }

    #[test]
    fn characters_that_could_break_a_header_are_escaped() {
        assert_eq!(encode("a b\r\nc%é".as_bytes()), "a%20b%0D%0Ac%25%C3%A9");
    }

    #[test]
    fn long_keys_are_replaced_by_distinct_digests() {
        let long = [b'a'; 300];
        let other = [b'a'; 301];
        assert_eq!(encode(&long).len(), 16);
        assert_ne!(encode(&long), encode(&other));
        assert_eq!(
            encode(&[b' '; 100]).len(),
            16,
            "long only once it is escaped"
        );
        assert_eq!(encode(&[b'a'; SESSION_BYTES_MAX]).len(), SESSION_BYTES_MAX);
    }
}
