//! XXH3's 64-bit hash with the default secret and no seed, by `twox-hash` except where a sandbox is slow with it.
//!
//! WebAssembly has no 128-bit product and no byte swap, so [`hash_pair`] is written out. Under SIMD, `lanes` hashes the
//! leaves of more than 240 bytes, nearly all bytes of a prompt: `twox-hash` has no SIMD for WebAssembly.
//! Without `lanes`, on 2026-11-23 with Rust 1.95 and `wasm32-wasip1`, extraction took 6 % longer at 64 KB and 7 % longer at 400 KB in
//! Envoy's V8 (`cargo xtask bench core extract`, least of four alternating runs).

use twox_hash::XxHash3_64;

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    #[cfg(all(target_family = "wasm", target_feature = "simd128"))]
    if let Some(hash) = lanes::hash(bytes) {
        return hash;
    }
    XxHash3_64::oneshot(bytes)
}

/// The hash of the 16 bytes of two numbers in little endian.
pub(crate) fn hash_pair(first: u64, second: u64) -> u64 {
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

/// The exclusive or of the two halves of the 128-bit product.
fn multiply_and_fold(left: u64, right: u64) -> u64 {
    if cfg!(target_family = "wasm") {
        multiply_by_halves(left, right)
    } else {
        let product = u128::from(left) * u128::from(right);
        (product >> 64) as u64 ^ product as u64
    }
}

/// [`multiply_and_fold`] by four products of 64 bits, which take half the time of the call that the compiler emits.
fn multiply_by_halves(left: u64, right: u64) -> u64 {
    let halves = |number: u64| (number & u64::from(u32::MAX), number >> 32);
    let ((left_low, left_high), (right_low, right_high)) = (halves(left), halves(right));
    let (middle_low, middle_high) = halves(left_high * right_low);
    let carry = ((left_low * right_low) >> 32) + middle_low + left_low * right_high;
    let high = left_high * right_high + middle_high + (carry >> 32);
    high ^ left.wrapping_mul(right)
}

/// Leaves, 16 bytes at a time.
///
/// A leaf is never long enough for XXH3 to scramble its sums, so the two addends of each sum stay apart until the end and
/// their halves are swapped once instead of in each step.
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
mod lanes {
    use core::arch::wasm32::{
        i32x4_shuffle, i64x2_add, i64x2_shuffle, u8x16_shuffle, u64x2, u64x2_extmul_high_u32x4,
        u64x2_extmul_low_u32x4, u64x2_extract_lane, u64x2_splat, v128, v128_xor,
    };

    use super::{avalanche, multiply_and_fold};

    /// XXH3 hashes up to this many bytes by other algorithms.
    const SHORT_BYTES_MAX: usize = 240;
    const STRIPE_BYTES: usize = 64;
    /// XXH3 scrambles the sums after this many stripes.
    const STRIPES_MAX: usize = 16;
    const START: [[u64; 2]; 4] = [
        [0xc2b2_ae3d, 0x9e37_79b1_85eb_ca87],
        [0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9],
        [0x85eb_ca77_c2b2_ae63, 0x85eb_ca77],
        [0x27d4_eb2f_1656_67c5, 0x9e37_79b1],
    ];
    const LENGTH_FACTOR: u64 = 0x9e37_79b1_85eb_ca87;

    /// The default secret of XXH3's specification, as numbers in little endian.
    const SECRET: [u64; 24] = [
        0xbe4b_a423_396c_feb8,
        0x1cad_21f7_2c81_017c,
        0xdb97_9083_e96d_d4de,
        0x1f67_b3b7_a4a4_4072,
        0x78e5_c0cc_4ee6_79cb,
        0x2172_ffcc_7dd0_5a82,
        0x8e24_43f7_7446_08b8,
        0x4c26_3a81_e690_35e0,
        0xcb00_c391_bb52_283c,
        0xa32e_531b_8b65_d088,
        0x4ef9_0da2_9748_6471,
        0xd8ac_dea9_46ef_1938,
        0x3f34_9ce3_3f76_faa8,
        0x1d4f_0bc7_c7bb_dcf9,
        0x3159_b4cd_4be0_518a,
        0x6473_78d9_c97e_9fc8,
        0xc3eb_d334_83ac_c5ea,
        0xeb63_13fa_ffa0_81c5,
        0x49da_f0b7_51dd_0d17,
        0x9e68_d429_2655_16d3,
        0xfca1_477d_58be_162b,
        0xce31_d07a_d1b8_f88f,
        0x2804_1695_8f3a_cb45,
        0x7e40_4bbb_cafb_d7af,
    ];
    const SECRET_BYTES: usize = 8 * SECRET.len();
    /// The secret of each stripe but the last.
    static STRIPE_SECRETS: [[u64; 8]; STRIPES_MAX - 1] = {
        let mut secrets = [[0; 8]; STRIPES_MAX - 1];
        let mut stripe = 0;
        while stripe < secrets.len() {
            secrets[stripe] = secret_at(8 * stripe);
            stripe += 1;
        }
        secrets
    };
    static LAST_STRIPE_SECRET: [u64; 8] = secret_at(SECRET_BYTES - STRIPE_BYTES - 7);
    const END_SECRET: [u64; 8] = secret_at(11);

    /// Eight numbers of the secret from this byte.
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    const fn secret_at(byte: usize) -> [u64; 8] {
        let (first, shift) = (byte / 8, 8 * (byte % 8));
        let mut numbers = [0; 8];
        let mut index = 0;
        while index < 8 {
            numbers[index] = SECRET[first + index] >> shift;
            if shift > 0 {
                numbers[index] |= SECRET[first + index + 1] << (64 - shift);
            }
            index += 1;
        }
        numbers
    }

    /// The addends of the sums: products, and the bytes themselves.
    struct Sums {
        products: [v128; 4],
        bytes: [v128; 4],
    }

    /// The hash of a leaf; `None` for shorter and longer bytes.
    pub(super) fn hash(leaf: &[u8]) -> Option<u64> {
        if leaf.len() <= SHORT_BYTES_MAX || leaf.len() > STRIPES_MAX * STRIPE_BYTES {
            return None;
        }
        let last = leaf.last_chunk()?;
        // The last 64 bytes are always a stripe of their own, even where they overlap the stripe before.
        let mut rest = leaf.get(..leaf.len() - 1)?;
        let mut sums = Sums {
            products: START.map(|[first, second]| u64x2(first, second)),
            bytes: [u64x2(0, 0); 4],
        };
        // Not a loop, which would add to an address in each step: a sandbox folds only constant offsets into its loads.
        macro_rules! stripes {
            ($($number:literal)*) => { $(
                if let Some((stripe, behind)) = rest.split_first_chunk() {
                    sums.add(stripe, &STRIPE_SECRETS[$number]);
                    rest = behind;
                }
            )* };
        }
        stripes!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
        if let Some((stripe, _)) = rest.split_first_chunk() {
            sums.add(stripe, &STRIPE_SECRETS[14]);
        }
        sums.add(last, &LAST_STRIPE_SECRET);
        Some(sums.finish(leaf.len() as u64))
    }

    /// WebAssembly can reverse the bytes of a vector only.
    pub(super) fn swap_bytes(number: u64) -> u64 {
        let bytes = u64x2_splat(number);
        let swapped = u8x16_shuffle::<7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0>(bytes, bytes);
        u64x2_extract_lane::<0>(swapped)
    }

    impl Sums {
        #[inline(always)]
        fn add(&mut self, stripe: &[u8; STRIPE_BYTES], secret: &[u64; 8]) {
            let (parts, _) = stripe.as_chunks::<16>();
            let (secrets, _) = secret.as_chunks::<2>();
            let mut mixed = [u64x2(0, 0); 4];
            let read = parts.iter().zip(secrets).zip(&mut mixed);
            for (((part, [first, second]), mixed), bytes) in read.zip(&mut self.bytes) {
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

        fn finish(self, length: u64) -> u64 {
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
    fn a_pair_hashes_as_its_sixteen_bytes() {
        let mut number = 1_u64;
        for _ in 0..10_000 {
            let first = number;
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 29);
            for (first, second) in [
                (first, number),
                (first, 0),
                (u64::MAX, number),
                (u64::MAX, u64::MAX),
            ] {
                let bytes = (u128::from(second) << 64 | u128::from(first)).to_le_bytes();
                assert_eq!(hash_pair(first, second), XxHash3_64::oneshot(&bytes));
                assert_eq!(
                    multiply_by_halves(first, second),
                    multiply_and_fold(first, second)
                );
            }
        }
    }
}
