//! String escapes, decoded one byte at a time, including surrogate pairs.

/// The replacement for a surrogate without its partner.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The state of the escape that is being read.
#[derive(Debug, Default)]
pub(super) struct EscapeDecoder {
    /// The first half of a surrogate pair, until the next character.
    high: Option<u16>,
    /// The value and the number of the digits of `\uXXXX` so far, inside such an escape.
    unit: Option<(u16, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    More,
    /// The escape has ended with at most two characters.
    Done([Option<char>; 2]),
    /// The byte is not part of an escape.
    Invalid,
}

/// The character of an escape of one letter other than `u`.
pub(super) fn single_letter(letter: u8) -> Option<u8> {
    match letter {
        b'"' | b'\\' | b'/' => Some(letter),
        b'n' => Some(b'\n'),
        b't' => Some(b'\t'),
        b'r' => Some(b'\r'),
        b'b' => Some(0x08),
        b'f' => Some(0x0C),
        _ => None,
    }
}

impl EscapeDecoder {
    /// Whether the first half of a surrogate pair is pending.
    pub(super) fn has_pending_surrogate(&self) -> bool {
        self.high.is_some()
    }

    /// Drops a pending surrogate and returns its replacement.
    pub(super) fn take_lone_surrogate(&mut self) -> Option<char> {
        self.high.take().map(|_| REPLACEMENT)
    }

    /// Reads the next byte after the backslash.
    pub(super) fn push(&mut self, byte: u8) -> Step {
        let Some((value, digits)) = self.unit.take() else {
            if byte == b'u' {
                self.unit = Some((0, 0));
                return Step::More;
            }
            let Some(byte) = single_letter(byte) else {
                return Step::Invalid;
            };
            return Step::Done([self.take_lone_surrogate(), Some(char::from(byte))]);
        };
        let Some(digit) = char::from(byte).to_digit(16) else {
            return Step::Invalid;
        };
        let value = (value << 4) | digit as u16;
        if digits < 3 {
            self.unit = Some((value, digits + 1));
            return Step::More;
        }
        self.finish_unit(value)
    }

    fn finish_unit(&mut self, unit: u16) -> Step {
        match (self.high.take(), unit) {
            (Some(high), 0xDC00..=0xDFFF) => {
                let pair =
                    (u32::from(high) - 0xD800) * 0x400 + (u32::from(unit) - 0xDC00) + 0x1_0000;
                Step::Done([char::from_u32(pair), None])
            }
            (high, 0xD800..=0xDBFF) => {
                self.high = Some(unit);
                Step::Done([high.map(|_| REPLACEMENT), None])
            }
            (high, _) => {
                let char = char::from_u32(u32::from(unit)).unwrap_or(REPLACEMENT);
                Step::Done([high.map(|_| REPLACEMENT), Some(char)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    /// Decodes text that consists of escapes alone.
    fn unescape(escapes: &str) -> Option<String> {
        let mut state = EscapeDecoder::default();
        let mut text = String::new();
        let mut bytes = escapes.bytes();
        while let Some(b'\\') = bytes.next() {
            loop {
                match state.push(bytes.next()?) {
                    Step::More => {}
                    Step::Done(chars) => {
                        text.extend(chars.into_iter().flatten());
                        break;
                    }
                    Step::Invalid => return None,
                }
            }
        }
        text.extend(state.take_lone_surrogate());
        Some(text)
    }

    #[test]
    fn every_kind_of_escape_is_decoded() {
        assert_eq!(
            unescape(r#"\"\\\/\b\f\n\r\t"#).unwrap(),
            "\"\\/\u{8}\u{c}\n\r\t"
        );
        assert_eq!(unescape(r"\u0041\u00e9\u20AC").unwrap(), "Aé€");
        assert_eq!(unescape(r"\ud83d\ude00").unwrap(), "😀");
    }

    #[test]
    fn a_lone_surrogate_becomes_the_replacement_character() {
        assert_eq!(unescape(r"\ud83d").unwrap(), "\u{fffd}");
        assert_eq!(unescape(r"\ude00").unwrap(), "\u{fffd}");
        assert_eq!(unescape(r"\ud83d\n").unwrap(), "\u{fffd}\n");
        assert_eq!(unescape(r"\ud83d\u0041").unwrap(), "\u{fffd}A");
        assert_eq!(unescape(r"\ud83d\ud83d\ude00").unwrap(), "\u{fffd}😀");
    }

    #[test]
    fn invalid_escapes_are_refused() {
        assert_eq!(unescape(r"\x41"), None);
        assert_eq!(unescape(r"\u00g1"), None);
    }
}
