//! The key of one recording, and the ids that it makes.
//!
//! HMAC-SHA256 rather than the XXH3 of the fingerprints with a seed: XXH3 is not made to keep its seed secret from who
//! knows inputs and outputs, and whoever has a trace may well know some of the prompts in it.

use std::fmt;

use ring::hmac;
use ring::rand::SystemRandom;

/// Ids have so many bits: what every reader of JSON keeps whole.
const ID_BITS: u32 = 53;
/// What an id stands for: equal numbers of two kinds have different ids.
const PREFIX: u8 = 1;
const SESSION: u8 = 2;

/// The key of one recording.
pub struct Salt(hmac::Key);

/// There is nothing to make a key of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers, and without a secret key nothing is recorded")]
pub struct NoRandomness;

impl Salt {
    /// A new one, which nobody knows.
    ///
    /// # Errors
    ///
    /// When the system has no random numbers.
    pub fn random() -> Result<Self, NoRandomness> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(|_| NoRandomness)
    }

    /// The id of a prompt's prefix, from the hash of a block of its fingerprint.
    #[must_use]
    pub fn prefix(&self, hash: u64) -> u64 {
        self.id(PREFIX, hash)
    }

    /// The id of a session, from its key.
    #[must_use]
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

/// The part of a hash that is an id.
pub(super) fn short(hash: u64) -> u64 {
    hash >> (u64::BITS - ID_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_one_recording_are_equal_where_hashes_are_and_of_two_they_never_are() {
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
