//! The token counts of a request as a header value, `PROMPT` or `PROMPT;OUTPUT_MAX`, and back.

use alloc::string::String;

use crate::decimal;

/// Two numbers and what is between them.
const VALUE_BYTES_MAX: usize = 21;

/// Estimated prompt tokens and, where the request says so, the most output tokens that it allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens {
    /// Estimated prompt tokens.
    pub prompt: u32,
    /// The most output tokens that the request allows.
    pub output_max: Option<u32>,
}

/// The header value.
#[must_use]
pub fn encode(tokens: Tokens) -> String {
    let mut value = String::with_capacity(VALUE_BYTES_MAX);
    decimal::push(&mut value, u64::from(tokens.prompt));
    if let Some(output_max) = tokens.output_max {
        value.push(';');
        decimal::push(&mut value, u64::from(output_max));
    }
    value
}

/// Reads what [`encode`] wrote; `None` for anything else.
#[must_use]
pub fn parse(value: &[u8]) -> Option<Tokens> {
    let value = core::str::from_utf8(value).ok()?;
    let (prompt, output_max) = match value.split_once(';') {
        Some((prompt, output_max)) => (prompt, Some(number(output_max)?)),
        None => (value, None),
    };
    Some(Tokens {
        prompt: number(prompt)?,
        output_max,
    })
}

/// A decimal number without sign or blanks: `u32::from_str` alone would take `+1`.
fn number(text: &str) -> Option<u32> {
    if text.starts_with('+') {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_parses_to_the_same_counts() {
        for output_max in [None, Some(0), Some(u32::MAX)] {
            let tokens = Tokens {
                prompt: 1234,
                output_max,
            };
            assert_eq!(parse(encode(tokens).as_bytes()), Some(tokens));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for value in [
            "",
            ";",
            "1;",
            ";1",
            "-1",
            "+1",
            "1;2;3",
            " 1",
            "4294967296",
            "x",
        ] {
            assert_eq!(parse(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(parse(&[0xff]), None);
    }
}
