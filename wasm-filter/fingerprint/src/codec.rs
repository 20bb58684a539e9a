//! The encoding of a fingerprint as a header value.
//!
//! Layout, in base64url without padding:
//! `version (1 byte) | total_bytes (varint) | digest (8 bytes, little endian) | blocks (varint) |
//! per block: gap (varint), hash (8 bytes, little endian)`.
//! A gap is the distance from the end of the block before: in units of [`BLOCK_BYTES`] shifted left by one, or in bytes
//! shifted left by one with the lowest bit set. A decoder needs no grid, so different versions understand each other.
//!
//! The decoder treats every byte as hostile: it reads at most [`HEADER_BYTES_MAX`], allocates no more than the input can
//! fill, and returns only chains that [`Fingerprint::new`] accepts.

use alloc::string::String;
use alloc::vec::Vec;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::grid::{BLOCK_BYTES, BLOCKS_MAX};
use crate::{BlockHash, Fingerprint};

/// The version that [`Fingerprint::encode`] writes.
pub(crate) const VERSION: u8 = 2;
/// The longest header value that the decoder accepts, in bytes. A prompt of 1 MB needs less than 2,048, one of 64 MiB less than 4,096.
pub const HEADER_BYTES_MAX: usize = 6144;

/// The longest varint, of a `u32` and one more bit.
const VARINT_BYTES_MAX: u32 = 5;

/// The reason why a header value is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum DecodeError {
    /// The value is longer than [`HEADER_BYTES_MAX`].
    #[error("fingerprint is longer than {HEADER_BYTES_MAX} bytes")]
    TooLong,
    /// The value is not base64url without padding.
    #[error("fingerprint is not base64url without padding")]
    NotBase64,
    /// This build does not read the version.
    #[error(
        "fingerprint has version {0}, this build reads version {VERSION}: update the older of filter and service"
    )]
    UnknownVersion(u8),
    /// The value ends too early, or a number is too large.
    #[error("fingerprint ends in the middle of a field")]
    Truncated,
    /// Bytes follow the last block.
    #[error("fingerprint has bytes after its last block")]
    TrailingBytes,
    /// The blocks do not increase, lie past the end, or are too many.
    #[error("fingerprint has blocks that do not increase, or lie past its end")]
    BadBlocks,
}

impl Fingerprint {
    /// The header value: at most 2,048 characters for a rendered prompt of 1 MB.
    pub fn encode(&self) -> String {
        let mut bytes = Vec::with_capacity(24 + self.blocks().len() * 10);
        bytes.push(VERSION);
        push_varint(&mut bytes, u64::from(self.total_bytes()));
        bytes.extend_from_slice(&self.digest().to_le_bytes());
        push_varint(&mut bytes, self.blocks().len() as u64);
        let mut previous = 0;
        for block in self.blocks() {
            push_varint(
                &mut bytes,
                pack_gap(block.end_bytes.saturating_sub(previous)),
            );
            bytes.extend_from_slice(&block.hash.to_le_bytes());
            previous = block.end_bytes;
        }
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Decodes a value of [`Fingerprint::encode`]. Any bytes are safe; others than a fingerprint of this version fail.
    pub fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        if value.len() > HEADER_BYTES_MAX {
            return Err(DecodeError::TooLong);
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(value)
            .map_err(|_| DecodeError::NotBase64)?;
        let mut reader = Reader(&bytes);
        let version = reader.byte()?;
        if version != VERSION {
            return Err(DecodeError::UnknownVersion(version));
        }
        let total_bytes = u32::try_from(reader.varint()?).map_err(|_| DecodeError::Truncated)?;
        let digest = reader.hash()?;
        let count = usize::try_from(reader.varint()?).map_err(|_| DecodeError::BadBlocks)?;
        if count > BLOCKS_MAX {
            return Err(DecodeError::BadBlocks);
        }
        let mut blocks = Vec::with_capacity(count);
        let mut end_bytes: u32 = 0;
        for _ in 0..count {
            let gap = unpack_gap(reader.varint()?).ok_or(DecodeError::BadBlocks)?;
            end_bytes = end_bytes.checked_add(gap).ok_or(DecodeError::BadBlocks)?;
            let hash = reader.hash()?;
            blocks.push(BlockHash { hash, end_bytes });
        }
        if !reader.0.is_empty() {
            return Err(DecodeError::TrailingBytes);
        }
        let chain = Self::new(blocks, total_bytes).ok_or(DecodeError::BadBlocks)?;
        Ok(chain.with_digest(digest))
    }
}

fn pack_gap(gap_bytes: u32) -> u64 {
    if gap_bytes.is_multiple_of(BLOCK_BYTES) {
        u64::from(gap_bytes / BLOCK_BYTES) << 1
    } else {
        (u64::from(gap_bytes) << 1) | 1
    }
}

fn unpack_gap(packed: u64) -> Option<u32> {
    let value = u32::try_from(packed >> 1).ok()?;
    if packed & 1 == 1 {
        // A gap has one encoding, so that a header has one too.
        (!value.is_multiple_of(BLOCK_BYTES)).then_some(value)
    } else {
        value.checked_mul(BLOCK_BYTES)
    }
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.0.split_first().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*first)
    }

    fn hash(&mut self) -> Result<u64, DecodeError> {
        let (hash, rest) = self.0.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*hash))
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for index in 0..VARINT_BYTES_MAX {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                // A leading zero would be a second encoding of the same number.
                return if byte == 0 && index > 0 {
                    Err(DecodeError::Truncated)
                } else {
                    Ok(value)
                };
            }
        }
        Err(DecodeError::Truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(ends: &[u32], total: u32) -> Fingerprint {
        let blocks = ends
            .iter()
            .map(|&end_bytes| BlockHash {
                hash: u64::from(end_bytes).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                end_bytes,
            })
            .collect();
        Fingerprint::new(blocks, total).unwrap()
    }

    #[test]
    fn an_encoded_chain_decodes_to_the_same_chain() {
        for fingerprint in [
            Fingerprint::default(),
            chain(&[], 17),
            chain(&[256, 512, 700, 1024], 1030),
            chain(&[1, 2, u32::MAX], u32::MAX),
            chain(&[256], 300).with_digest(u64::MAX),
        ] {
            let header = fingerprint.encode();
            assert_eq!(Fingerprint::decode(header.as_bytes()), Ok(fingerprint));
        }
    }

    #[test]
    fn a_prompt_of_one_megabyte_fits_into_two_kilobytes() {
        let total = 1 << 20;
        let mut ends = Vec::new();
        let mut end = crate::grid::block_bytes_at(0);
        while end <= total {
            ends.push(end);
            end += crate::grid::block_bytes_at(end);
        }
        let header = chain(&ends, total).encode();
        assert!(
            header.len() <= 2048,
            "{} characters for {} blocks",
            header.len(),
            ends.len()
        );
    }

    #[test]
    fn truncated_and_corrupted_values_are_refused_or_decode_to_another_chain() {
        let header = chain(&[256, 512, 700], 1030).encode().into_bytes();
        for length in 0..header.len() {
            assert!(
                Fingerprint::decode(&header[..length]).is_err(),
                "cut at {length}"
            );
        }
        for index in 0..header.len() {
            let mut hostile = header.clone();
            hostile[index] ^= 0x11;
            if let Ok(chain) = Fingerprint::decode(&hostile) {
                assert_eq!(chain.encode().into_bytes(), hostile);
            }
        }
    }

    #[test]
    fn the_error_of_another_version_names_the_remedy() {
        let header = URL_SAFE_NO_PAD.encode([9, 0, 0]);
        let error = Fingerprint::decode(header.as_bytes()).unwrap_err();
        assert_eq!(error, DecodeError::UnknownVersion(9));
        assert!(alloc::format!("{error}").contains("update"));
    }
}
