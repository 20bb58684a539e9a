//! XXH3's 64-bit hash, with the default secret and without a seed.
//!
//! The hashes are `xxhash_rust`'s. Two cases that make up nearly all of a prompt are done here instead, where a sandbox is
//! slow with what that crate does: two numbers, whose length is known, and, inside WebAssembly, a leaf of more than 240
//! bytes. There the crate keeps its sums in memory and crosses their halves at each step. A leaf is never long enough for its
//! sums to be scrambled, so they can stay apart until the end.

use xxhash_rust::xxh3::xxh3_64;

/// The hash of some bytes.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    #[cfg(all(target_family = "wasm", target_feature = "simd128"))]
    if let Some(hash) = lanes::hash(bytes) {
        return hash;
    }
    xxh3_64(bytes)
}

/// The hash of two numbers, as of their 16 bytes in little endian.
pub(crate) fn hash_of_two(first: u64, second: u64) -> u64 {
    // Bytes 24 to 56 of the secret, as four numbers.
    const FLIP_FIRST: u64 = 0x1f67_b3b7_a4a4_4072 ^ 0x78e5_c0cc_4ee6_79cb;
    const FLIP_SECOND: u64 = 0x2172_ffcc_7dd0_5a82 ^ 0x8e24_43f7_7446_08b8;
    let first = first ^ FLIP_FIRST;
    let second = second ^ FLIP_SECOND;
    let sum = swap_bytes(first)
        .wrapping_add(16)
        .wrapping_add(second)
        .wrapping_add(multiply_and_fold(first, second));
    avalanche(sum)
}

#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
use lanes::swap_bytes;
#[cfg(not(all(target_family = "wasm", target_feature = "simd128")))]
fn swap_bytes(number: u64) -> u64 {
    number.swap_bytes()
}

fn avalanche(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 37)).wrapping_mul(0x1656_6791_9e37_79f9);
    hash ^ (hash >> 32)
}

/// The two halves of a product of 128 bits, one upon the other.
fn multiply_and_fold(left: u64, right: u64) -> u64 {
    if cfg!(target_family = "wasm") {
        multiply_by_halves(left, right)
    } else {
        let product = u128::from(left) * u128::from(right);
        (product >> 64) as u64 ^ product as u64
    }
}

/// WebAssembly has no such product, and what the compiler calls in its place takes twice as long as four of 64 bits.
fn multiply_by_halves(left: u64, right: u64) -> u64 {
    let halves = |number: u64| (number & u64::from(u32::MAX), number >> 32);
    let ((left_low, left_high), (right_low, right_high)) = (halves(left), halves(right));
    let (middle_low, middle_high) = halves(left_high * right_low);
    let carry = ((left_low * right_low) >> 32) + middle_low + left_low * right_high;
    let high = left_high * right_high + middle_high + (carry >> 32);
    high ^ left.wrapping_mul(right)
}

/// Leaves, 16 bytes at a time.
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
mod lanes {
    use core::arch::wasm32::{
        i32x4_shuffle, i64x2_add, i64x2_shuffle, u8x16_shuffle, u64x2, u64x2_extmul_high_u32x4,
        u64x2_extmul_low_u32x4, u64x2_extract_lane, u64x2_splat, v128, v128_xor,
    };

    use super::{avalanche, multiply_and_fold};

    /// Up to here XXH3 has other ways.
    const SHORT_BYTES_MAX: usize = 240;
    const STRIPE_BYTES: usize = 64;
    /// Beyond these sums are scrambled between stripes.
    const STRIPES_MAX: usize = 16;
    /// The sums at the start.
    const START: [[u64; 2]; 4] = [
        [0xc2b2_ae3d, 0x9e37_79b1_85eb_ca87],
        [0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9],
        [0x85eb_ca77_c2b2_ae63, 0x85eb_ca77],
        [0x27d4_eb2f_1656_67c5, 0x9e37_79b1],
    ];
    const LENGTH_FACTOR: u64 = 0x9e37_79b1_85eb_ca87;

    /// The default secret, from XXH3's specification.
    const SECRET: [u8; 192] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad,
        0x1c, 0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3,
        0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc,
        0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
        0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65,
        0x8b, 0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19,
        0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9,
        0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
        0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb,
        0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0,
        0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d,
        0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
        0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];
    /// What each stripe but the last is mixed with, laid out so that a stripe's number is all that it takes to find it.
    static SECRETS: [[u64; 8]; STRIPES_MAX - 1] = {
        let mut secrets = [[0; 8]; STRIPES_MAX - 1];
        let mut stripe = 0;
        while stripe < secrets.len() {
            secrets[stripe] = numbers(8 * stripe);
            stripe += 1;
        }
        secrets
    };
    /// What the last stripe is mixed with.
    static LAST_SECRET: [u64; 8] = numbers(SECRET.len() - STRIPE_BYTES - 7);
    /// What the sums are mixed with at the end.
    const END_SECRET: [u64; 8] = numbers(11);

    /// Eight numbers of the secret.
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const fn numbers(start: usize) -> [u64; 8] {
        let mut numbers = [0; 8];
        let mut number = 0;
        while number < 8 {
            let mut byte = 0;
            while byte < 8 {
                numbers[number] |= (SECRET[start + 8 * number + byte] as u64) << (8 * byte);
                byte += 1;
            }
            number += 1;
        }
        numbers
    }

    /// The sums so far: of products, and of the bytes themselves, whose halves are not crossed yet.
    struct Sums {
        products: [v128; 4],
        bytes: [v128; 4],
    }

    /// The hash of a leaf; `None` for what is shorter or longer.
    pub(super) fn hash(leaf: &[u8]) -> Option<u64> {
        if leaf.len() <= SHORT_BYTES_MAX || leaf.len() > STRIPES_MAX * STRIPE_BYTES {
            return None;
        }
        let last = leaf.last_chunk()?;
        // The last stripe is always one of its own, also where it lies over the one before.
        let mut rest = leaf.get(..leaf.len() - 1)?;
        let mut sums = Sums {
            products: START.map(|[first, second]| u64x2(first, second)),
            bytes: [u64x2(0, 0); 4],
        };
        // Not a loop, since that takes an addition for each address: a sandbox adds only to what it knows not to wrap.
        macro_rules! stripes {
            ($($number:literal)*) => { $(
                if let Some((stripe, behind)) = rest.split_first_chunk() {
                    sums.add(stripe, &SECRETS[$number]);
                    rest = behind;
                }
            )* };
        }
        stripes!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
        if let Some((stripe, _)) = rest.split_first_chunk() {
            sums.add(stripe, &SECRETS[14]);
        }
        sums.add(last, &LAST_SECRET);
        Some(sums.end(leaf.len() as u64))
    }

    /// WebAssembly cannot turn a number around; a vector it can.
    pub(super) fn swap_bytes(number: u64) -> u64 {
        let bytes = u64x2_splat(number);
        let turned = u8x16_shuffle::<7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0>(bytes, bytes);
        u64x2_extract_lane::<0>(turned)
    }

    impl Sums {
        #[inline(always)]
        fn add(&mut self, stripe: &[u8; STRIPE_BYTES], secret: &[u64; 8]) {
            let (parts, _) = stripe.as_chunks::<16>();
            let (secrets, _) = secret.as_chunks::<2>();
            let mut mixed = [u64x2(0, 0); 4];
            let read = parts
                .iter()
                .zip(secrets)
                .zip(&mut mixed)
                .zip(&mut self.bytes);
            for (((part, [first, second]), mixed), bytes) in read {
                let part = load(part);
                *bytes = i64x2_add(*bytes, part);
                *mixed = v128_xor(part, u64x2(*first, *second));
            }
            let [first, second, third, fourth] = mixed;
            let products = [multiply(first, second), multiply(third, fourth)];
            for (sum, products) in self.products.iter_mut().zip(products.as_flattened()) {
                *sum = i64x2_add(*sum, *products);
            }
        }

        fn end(self, length: u64) -> u64 {
            let mut hash = length.wrapping_mul(LENGTH_FACTOR);
            let (secrets, _) = END_SECRET.as_chunks::<2>();
            let sums = self.products.into_iter().zip(self.bytes);
            for ((products, bytes), [first, second]) in sums.zip(secrets) {
                let sum = i64x2_add(products, i64x2_shuffle::<1, 0>(bytes, bytes));
                hash = hash.wrapping_add(multiply_and_fold(
                    u64x2_extract_lane::<0>(sum) ^ first,
                    u64x2_extract_lane::<1>(sum) ^ second,
                ));
            }
            avalanche(hash)
        }
    }

    /// The products of the halves of each of four numbers.
    #[inline(always)]
    fn multiply(first: v128, second: v128) -> [v128; 2] {
        let low = i32x4_shuffle::<0, 2, 4, 6>(first, second);
        let high = i32x4_shuffle::<1, 3, 5, 7>(first, second);
        [
            u64x2_extmul_low_u32x4(low, high),
            u64x2_extmul_high_u32x4(low, high),
        ]
    }

    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> v128 {
        let number = u128::from_le_bytes(*bytes);
        u64x2(number as u64, (number >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_hash_as_their_bytes_do() {
        let mut number = 1_u64;
        for _ in 0..10_000 {
            let first = number;
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 29);
            for (first, second) in [(first, number), (first, 0), (u64::MAX, number)] {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&first.to_le_bytes());
                bytes[8..].copy_from_slice(&second.to_le_bytes());
                assert_eq!(hash_of_two(first, second), xxh3_64(&bytes));
                assert_eq!(
                    multiply_by_halves(first, second),
                    multiply_and_fold(first, second)
                );
            }
        }
        let most = u64::MAX;
        assert_eq!(hash_of_two(most, most), xxh3_64(&[0xff; 16]));
        assert_eq!(
            multiply_by_halves(most, most),
            multiply_and_fold(most, most)
        );
    }
}
