//! The key of one recording, and the ids that it makes.
//!
//! Ids are HMAC-SHA256 of the hashes. Rejected: XXH3 with a seed. XXH3 does not keep its seed secret from a reader who knows
//! inputs and outputs, and the reader of a trace may know some of its prompts.

use std::fmt;

use anyhow::anyhow;
use ring::hmac;
use ring::rand::SystemRandom;

/// Length of an id in bits: every JSON parser reads such a number exactly.
const ID_BITS: u32 = 53;
/// Kinds of ids: equal numbers of two kinds have different ids.
const PREFIX: u8 = 1;
const SESSION: u8 = 2;

/// The key of one recording.
pub struct Salt(hmac::Key);

impl Salt {
    /// Creates a random key.
    /// Fails when the system has no random numbers.
    pub fn random() -> anyhow::Result<Self> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(|_| {
            anyhow!(
                "the system gives no random numbers, and without a secret key nothing is recorded"
            )
        })
    }

    /// Returns the id of a prefix, from its block hash.
    pub fn prefix(&self, hash: u64) -> u64 {
        self.id(PREFIX, hash)
    }

    /// Returns the id of a session, from its key.
    pub fn session(&self, key: u64) -> u64 {
        self.id(SESSION, key)
    }

    fn id(&self, kind: u8, value: u64) -> u64 {
        let mut message = [kind; 9];
        let (_, number) = message.split_at_mut(1);
        number.copy_from_slice(&value.to_le_bytes());
        let tag = hmac::sign(&self.0, &message);
        let mut id = [0; 8];
        for (byte, from) in id.iter_mut().zip(tag.as_ref()) {
            *byte = *from;
        }
        short(u64::from_le_bytes(id))
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}

/// Shortens a hash to an id.
pub(super) fn short(hash: u64) -> u64 {
    hash >> (u64::BITS - ID_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_hashes_have_equal_ids_within_one_recording_only() {
        let (one, two) = (Salt::random().unwrap(), Salt::random().unwrap());
        for hash in [0, 1, 7, u64::MAX] {
            assert_eq!(one.prefix(hash), one.prefix(hash));
            assert_ne!(one.prefix(hash), one.prefix(hash ^ 2));
            assert_ne!(one.prefix(hash), two.prefix(hash));
            assert_ne!(one.session(hash), two.session(hash));
            assert_ne!(one.prefix(hash), one.session(hash));
            assert!(one.prefix(hash) < 1 << ID_BITS);
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", Salt::random().unwrap()), "Salt");
    }
}
