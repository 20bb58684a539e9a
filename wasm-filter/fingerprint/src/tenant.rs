//! The names of tenants as header values.
//!
//! Authentication sets the source of a name, and may put anything there, such as an address or a distinguished name. A short name of plain
//! characters is kept, so that logs and metrics show it. Any other name is replaced by its keyed hash.

use alloc::string::String;

use crate::leaves::Digest;
use crate::session::SessionSecret;

/// The longest name that is kept, and the longest header value, in bytes.
pub const TENANT_BYTES_MAX: usize = 64;

/// Whether a header value may name a tenant: visible ASCII without the characters that separate or quote values.
#[must_use]
pub fn is_valid(value: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !br#"",;\"#.contains(byte);
    (1..=TENANT_BYTES_MAX).contains(&value.len()) && value.iter().all(is_plain)
}

/// The header value of a tenant's name; `None` for an empty name.
#[must_use]
pub fn encode(secret: &SessionSecret, name: &[u8]) -> Option<String> {
    let name = name.trim_ascii();
    match str::from_utf8(name) {
        Ok("") => None,
        Ok(plain) if is_valid(name) => Some(plain.into()),
        _ => Some(secret.hash(name)),
    }
}

/// The seed of a tenant's fingerprints. Without a tenant it is 0.
pub(crate) fn seed(tenant: &str) -> u64 {
    Digest::of(tenant.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_is_kept_and_any_other_is_hashed() {
        let secret = SessionSecret::default();
        let value = |name: &str| encode(&secret, name.as_bytes());
        assert_eq!(value(" team-a "), Some("team-a".into()));
        assert_eq!(value(" "), None);
        let long = "a".repeat(65);
        for other in ["a b", "a,b", "a;b", "a\"b", "a\\b", "\u{e9}", &long] {
            let hashed = value(other).unwrap();
            assert_eq!(hashed, secret.hash(other.as_bytes()));
            assert!(is_valid(hashed.as_bytes()));
        }
    }

    #[test]
    fn the_seed_of_no_tenant_is_zero() {
        assert_eq!(seed(""), 0);
        assert_ne!(seed("a"), seed("b"));
    }
}
