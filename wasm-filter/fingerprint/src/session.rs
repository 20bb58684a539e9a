//! Session keys and names of models as header values.
//!
//! Clients choose both, so they may contain any bytes. A name is percent-encoded: all but visible ASCII characters, and a long name is
//! replaced by its digest.
//!
//! A session key may be a credential, such as a login cookie, or name a person. So the header holds its hash: SipHash-2-4 under the
//! secret of the configuration. Envoy's ring hash and the service only compare keys and never need the original. XXH3, which hashes
//! prompts, was rejected: a client that knows the function can choose keys that meet on one replica. The hash is written like the end of
//! an IPv6 address: the only filter state that Envoy 1.36 and 1.37 hash for a retry is an address.
//!
//! Without a configured secret the key of the hash is a constant. Then the header still reveals no key that cannot be guessed, and all workers,
//! Envoys and regions agree at once and after restarts. A random secret for each process was rejected: behind a balancer, the requests of one
//! session would have as many keys as there are Envoys. So would a secret made of the rest of the configuration, at every change of it.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::hash::Hasher as _;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128 as _, SipHasher24 as SipHasher128};

use crate::leaves::Digest;

/// The longest name that is kept, and the longest header value, in bytes.
pub const SESSION_BYTES_MAX: usize = 256;

/// The least bytes of a secret.
pub const SECRET_BYTES_MIN: usize = 16;

/// The key of the hash without a configured secret. The configured secret is hashed under it.
const DEFAULT_KEY: [u8; 16] = *b"isotherm-session";

/// The ASCII characters that are percent-encoded; every byte outside ASCII is.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// The key with which session keys are hashed. Its debug format hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionSecret([u8; 16]);

impl Default for SessionSecret {
    fn default() -> Self {
        Self(DEFAULT_KEY)
    }
}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SessionSecret(..)")
    }
}

impl SessionSecret {
    /// Derives the key from the text of a configuration. `None` for a text of fewer than [`SECRET_BYTES_MIN`] bytes.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        (text.len() >= SECRET_BYTES_MIN).then(|| {
            let mut hasher = SipHasher128::new_with_key(&DEFAULT_KEY);
            hasher.write(text.as_bytes());
            Self(hasher.finish128().as_bytes())
        })
    }

    /// The header value of a session key: 16 hexadecimal digits in groups of four, with colons between them.
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> String {
        self.hash_of_tenant(None, key)
    }

    /// The header value of a tenant's session key. Two tenants with one key have two values.
    #[must_use]
    pub fn hash_of_tenant(&self, tenant: Option<&str>, key: &[u8]) -> String {
        // A key of the tenant's own: a client may put any bytes into its session key, a tenant's name among them.
        let secret = tenant.map_or(self.0, |tenant| {
            let mut hasher = SipHasher128::new_with_key(&self.0);
            hasher.write(tenant.as_bytes());
            hasher.finish128().as_bytes()
        });
        let mut hasher = SipHasher24::new_with_key(&secret);
        if key.len() <= SESSION_BYTES_MAX {
            hasher.write(key);
        } else {
            // The extractor keeps no more of a long key in a body.
            hasher.write(hex(Digest::of(key)).as_bytes());
        }
        groups(hasher.finish())
    }
}

/// The header value of a name: at most [`SESSION_BYTES_MAX`] visible ASCII characters.
pub fn encode(name: &[u8]) -> String {
    if name.len() <= SESSION_BYTES_MAX {
        let value: String = percent_encode(name, ESCAPED).collect();
        if value.len() <= SESSION_BYTES_MAX {
            return value;
        }
    }
    hex(Digest::of(name))
}

/// A digest as four groups of an IPv6 address.
fn groups(digest: u64) -> String {
    let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (digest >> shift) & 0xffff);
    format!("{a:04x}:{b:04x}:{c:04x}:{d:04x}")
}

/// A digest as 16 hexadecimal digits.
pub(crate) fn hex(digest: u64) -> String {
    format!("{digest:016x}")
}

#[cfg(test)]
mod tests {
    use core::net::Ipv6Addr;

    use super::*;

    #[test]
    fn a_session_key_is_hashed_with_the_secret() {
        let default = SessionSecret::default();
        let own = SessionSecret::from_text("a secret of the operator").unwrap();
        for key in [b"s".as_slice(), b"", &[0xff, b' '], &[b'a'; 300]] {
            let value = default.hash(key);
            assert_eq!(value.len(), 19);
            assert!(format!("::{value}").parse::<Ipv6Addr>().is_ok());
            assert_eq!(value, SessionSecret::default().hash(key));
            assert_ne!(value, own.hash(key));
        }
        assert_ne!(default.hash(b"a"), default.hash(b"b"));
    }

    #[test]
    fn a_long_key_has_the_hash_of_its_digest() {
        let long = [b'a'; 300];
        let digest = hex(Digest::of(&long));
        let secret = SessionSecret::default();
        assert_eq!(secret.hash(&long), secret.hash(digest.as_bytes()));
    }

    #[test]
    fn tenants_with_one_session_key_have_different_values() {
        let secret = SessionSecret::default();
        let of = |tenant| secret.hash_of_tenant(tenant, b"s");
        assert_eq!(of(None), secret.hash(b"s"));
        assert_ne!(of(Some("a")), of(None));
        assert_ne!(of(Some("a")), of(Some("b")));
        assert_ne!(of(Some("a")), secret.hash(b"a;s"));
    }

    #[test]
    fn a_secret_is_long_and_never_shown() {
        assert_eq!(SessionSecret::from_text("short"), None);
        let secret = SessionSecret::from_text("a secret of the operator").unwrap();
        assert_eq!(format!("{secret:?}"), "SessionSecret(..)");
    }

    #[test]
    fn visible_characters_are_kept() {
        assert_eq!(encode(b"user-42/a:b"), "user-42/a:b");
    }

    #[test]
    fn characters_that_could_break_a_header_are_escaped() {
        assert_eq!(encode("a b\r\nc%é".as_bytes()), "a%20b%0D%0Ac%25%C3%A9");
    }

    #[test]
    fn long_names_are_replaced_by_distinct_digests() {
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
