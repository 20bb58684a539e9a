//! The session key as a header value.
//!
//! Clients choose session keys, so one may hold anything: what is not a visible ASCII character is percent-encoded, and a
//! long one becomes its digest. Envoy's ring hash and the service only compare keys, so neither ever needs the original.

use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

use crate::leaves::Leaves;

/// The longest session key that is kept as it is, and the longest header value, in bytes.
pub const SESSION_BYTES_MAX: usize = 256;

/// The header value of a session key: at most [`SESSION_BYTES_MAX`] visible ASCII characters.
#[must_use]
pub fn encode(key: &[u8]) -> String {
    if key.len() > SESSION_BYTES_MAX {
        return digest(key);
    }
    let mut value = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_graphic() && byte != b'%' {
            value.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(value, "%{byte:02X}");
        }
    }
    if value.len() > SESSION_BYTES_MAX {
        return digest(key);
    }
    value
}

/// What stands for a key that is too long.
fn digest(key: &[u8]) -> String {
    let mut leaves = Leaves::default();
    leaves.push(key);
    hex(leaves.digest())
}

/// A digest as 16 hexadecimal digits.
pub(crate) fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_keys_stay_as_they_are() {
        assert_eq!(encode(b"user-42/a:b"), "user-42/a:b");
    }

    #[test]
    fn what_could_break_a_header_is_escaped() {
        assert_eq!(encode("a b\r\nc%é".as_bytes()), "a%20b%0D%0Ac%25%C3%A9");
    }

    #[test]
    fn long_keys_become_their_digest_and_stay_apart() {
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
