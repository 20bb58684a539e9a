//! The objectives of a request as header values: its tier, its budget for the first token, and its deadline.
//!
//! Clients write them in several spellings. A value that cannot be read counts as absent, so a client with a misspelt objective is
//! served as one without. Every value is clamped before anything is added to it: a sum that overflows would sort first in a
//! queue.
//!
//! SageServe (section 2.2) defines the tiers. OpenAI's `service_tier` names the same classes by price. The budget has the unit
//! of llm-d's `x-slo-ttft-ms`, and the deadline that of llm-d-async.

use alloc::string::String;

use crate::number;

/// The longest budget for the first token, in milliseconds: one hour.
pub const TTFT_MS_MAX: u32 = 3_600_000;
/// The longest time until a deadline, in milliseconds: 30 days.
pub const DEADLINE_MS_MAX: u32 = 2_592_000_000;

/// Every tier with its other spellings, the most urgent tier first.
const TIERS: [(&str, &[&str]); 3] = [
    ("interactive-fast", &["priority"]),
    ("interactive-normal", &["default", "auto"]),
    ("non-interactive", &["flex"]),
];
/// The digits of a fraction that count.
const FRACTION_DIGITS: usize = 3;

/// The tier of this name: a tier's own name in any case and with `_` or `-`, or a value of OpenAI's `service_tier`. `None` for
/// an unknown name.
#[must_use]
pub fn tier(name: &[u8]) -> Option<&'static str> {
    let name = name.trim_ascii();
    TIERS.into_iter().find_map(|(tier, others)| {
        let is_named =
            is_spelling(tier, name) || others.iter().any(|other| is_spelling(other, name));
        is_named.then_some(tier)
    })
}

/// The budget for the first token in whole milliseconds, from a decimal number of milliseconds. `None` for 0, which clients send
/// for no budget.
#[must_use]
pub fn ttft_ms(value: &[u8]) -> Option<u32> {
    let thousandths = thousandths(value)?;
    let budget = clamp(thousandths.div_ceil(1000), TTFT_MS_MAX);
    (budget > 0).then_some(budget)
}

/// The deadline in Unix milliseconds, from a decimal number of Unix seconds. `None` for 0.
#[must_use]
pub fn deadline_unix_ms(value: &[u8]) -> Option<u64> {
    thousandths(value).filter(|deadline| *deadline > 0)
}

/// The time left until a deadline, in milliseconds; 0 for a deadline that has passed.
#[must_use]
pub fn left_ms(deadline_unix_ms: u64, now_unix_ms: u64) -> u32 {
    clamp(
        deadline_unix_ms.saturating_sub(now_unix_ms),
        DEADLINE_MS_MAX,
    )
}

/// The header value of a number of milliseconds.
#[must_use]
pub fn encode_ms(ms: u32) -> String {
    let mut value = String::with_capacity(10);
    number::push(&mut value, ms);
    value
}

/// Parses the budget of [`crate::names::TTFT_MS`]; `None` for a value that the filter does not write.
#[must_use]
pub fn parse_ttft_ms(value: &[u8]) -> Option<u32> {
    let budget = number::parse(str::from_utf8(value).ok()?)?;
    (1..=TTFT_MS_MAX).contains(&budget).then_some(budget)
}

/// Parses the time of [`crate::names::DEADLINE`]; `None` for a value that the filter does not write.
#[must_use]
pub fn parse_deadline_ms(value: &[u8]) -> Option<u32> {
    let left = number::parse(str::from_utf8(value).ok()?)?;
    (left <= DEADLINE_MS_MAX).then_some(left)
}

fn is_spelling(known: &str, name: &[u8]) -> bool {
    let canonical = |byte: &u8| match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    };
    known.len() == name.len() && known.bytes().eq(name.iter().map(canonical))
}

/// A number without sign and exponent, in thousandths; the largest `u64` where it does not fit. Further digits are dropped.
fn thousandths(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii();
    let (whole, fraction) = match value.iter().position(|byte| *byte == b'.') {
        Some(point) => (value.get(..point)?, value.get(point + 1..)?),
        None => (value, &[][..]),
    };
    if whole.is_empty() || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = [b'0'; FRACTION_DIGITS];
    let fraction = fraction.iter().chain(&zeros).take(FRACTION_DIGITS);
    let digits = whole.iter().chain(fraction);
    Some(digits.fold(0u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    }))
}

fn clamp(ms: u64, ms_max: u32) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX).min(ms_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_has_several_spellings() {
        for (name, expected) in [
            ("Interactive_Fast", Some("interactive-fast")),
            (" non-interactive ", Some("non-interactive")),
            ("priority", Some("interactive-fast")),
            ("auto", Some("interactive-normal")),
            ("default", Some("interactive-normal")),
            ("FLEX", Some("non-interactive")),
            ("urgent", None),
            ("scale", None),
            ("", None),
        ] {
            assert_eq!(tier(name.as_bytes()), expected, "{name:?}");
        }
    }

    #[test]
    fn a_budget_is_clamped_and_rounded_up() {
        for (value, expected) in [
            ("250", Some(250)),
            (" 250 ", Some(250)),
            ("0.5", Some(1)),
            ("250.0001", Some(250)),
            ("250.001", Some(251)),
            ("99999999999999999999999999", Some(TTFT_MS_MAX)),
            ("0", None),
            ("", None),
            (".5", None),
            ("-1", None),
            ("+1", None),
            ("1e3", None),
            ("1.2.3", None),
            ("soon", None),
        ] {
            assert_eq!(ttft_ms(value.as_bytes()), expected, "{value:?}");
        }
    }

    #[test]
    fn a_deadline_is_a_number_of_seconds() {
        assert_eq!(deadline_unix_ms(b"1764085164"), Some(1_764_085_164_000));
        assert_eq!(deadline_unix_ms(b"1764085164.25"), Some(1_764_085_164_250));
        assert_eq!(deadline_unix_ms(b"99999999999999999999"), Some(u64::MAX));
        assert_eq!(deadline_unix_ms(b"0"), None);
        assert_eq!(deadline_unix_ms(b"tomorrow"), None);
    }

    #[test]
    fn the_time_left_is_bounded() {
        assert_eq!(left_ms(5_000, 2_000), 3_000);
        assert_eq!(left_ms(2_000, 5_000), 0);
        assert_eq!(left_ms(u64::MAX, 0), DEADLINE_MS_MAX);
    }

    #[test]
    fn a_value_of_the_filter_parses_to_the_same_number() {
        assert_eq!(parse_ttft_ms(encode_ms(250).as_bytes()), Some(250));
        let longest = encode_ms(DEADLINE_MS_MAX);
        assert_eq!(parse_deadline_ms(longest.as_bytes()), Some(DEADLINE_MS_MAX));
        assert_eq!(parse_deadline_ms(b"0"), Some(0));
        for value in ["0", "3600001", "-1", "1.5", "", "4294967296"] {
            assert_eq!(parse_ttft_ms(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(parse_deadline_ms(b"2592000001"), None);
    }
}
