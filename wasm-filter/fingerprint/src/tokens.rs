//! The token counts of a request as a header value, `PROMPT[+][;OUTPUT_MAX]`.

use alloc::string::String;

use crate::number;

/// The longest value: two numbers, the mark and the separator.
const VALUE_BYTES_MAX: usize = 22;
/// The mark of a prompt of which only the beginning was read.
const PARTIAL: char = '+';

/// Approximate bytes of text per token, for English text and code under vocabularies of 100,000 tokens and more.
const TEXT_BYTES_PER_TOKEN: u64 = 4;
/// Tokens of an image or another medium: the 24 by 24 patches of LLaVA-1.5. Models differ by a factor of ten, and the size
/// of the picture is unknown here; the estimate must not count the picture's base64 text.
pub const MEDIUM_TOKENS: u32 = 576;

/// The estimated tokens of a text of this length in bytes.
#[must_use]
pub fn of_text(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(TEXT_BYTES_PER_TOKEN)).unwrap_or(u32::MAX)
}

/// The estimated prompt tokens and the limit of output tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tokens {
    /// Estimated prompt tokens.
    pub prompt: u32,
    /// Whether the prompt goes on behind what was read.
    pub is_partial: bool,
    /// The most output tokens that the request allows, if it sets a limit.
    pub output_max: Option<u32>,
}

/// The header value.
pub fn encode(tokens: Tokens) -> String {
    let mut value = String::with_capacity(VALUE_BYTES_MAX);
    number::push(&mut value, tokens.prompt);
    if tokens.is_partial {
        value.push(PARTIAL);
    }
    if let Some(output_max) = tokens.output_max {
        value.push(';');
        number::push(&mut value, output_max);
    }
    value
}

/// Parses a value that [`encode`] wrote; `None` for any other value.
pub fn parse(value: &[u8]) -> Option<Tokens> {
    let value = str::from_utf8(value).ok()?;
    let (prompt, output_max) = match value.split_once(';') {
        Some((prompt, output_max)) => (prompt, Some(number::parse(output_max)?)),
        None => (value, None),
    };
    let read = prompt.strip_suffix(PARTIAL);
    Some(Tokens {
        prompt: number::parse(read.unwrap_or(prompt))?,
        is_partial: read.is_some(),
        output_max,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_counts_parse_to_the_same_counts() {
        for (output_max, is_partial) in [(None, false), (Some(0), true), (Some(u32::MAX), true)] {
            let tokens = Tokens {
                prompt: 1234,
                is_partial,
                output_max,
            };
            assert_eq!(parse(encode(tokens).as_bytes()), Some(tokens));
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for value in [
            "",
            ";",
            "1;",
            ";1",
            "-1",
            "+1",
            "+",
            "1++",
            "1;2+",
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
