//! Decimal numbers in header values.

use alloc::string::String;
use core::str::FromStr;

/// Appends a number. `itoa` rather than the standard formatting, which is slow in a sandbox; every request writes several.
pub(crate) fn push(text: &mut String, number: impl itoa::Integer) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Parses a number without sign; the parsers of the standard library accept `+1`.
pub(crate) fn parse<T: FromStr>(text: &str) -> Option<T> {
    let is_unsigned = text.bytes().all(|byte| byte.is_ascii_digit());
    is_unsigned.then(|| text.parse().ok()).flatten()
}
