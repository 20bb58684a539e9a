//! String escapes, a byte at a time, surrogate pairs included.

/// U+FFFD, in place of a surrogate without its partner.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// The escape that is being read.
#[derive(Debug, Default)]
pub(super) struct Unescape {
    /// The first half of a surrogate pair, once it was read: the second must follow at once.
    high: Option<u16>,
    /// The digits of `\uXXXX` read so far, where one is being read.
    unit: Option<Unit>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    value: u16,
    digits: u8,
}

/// What a byte of an escape led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The escape goes on.
    More,
    /// It has ended, with at most two characters.
    Done([Option<char>; 2]),
    /// This is no escape.
    Invalid,
}

/// The character of an escape that is one letter, other than `u`.
pub(super) fn short(letter: u8) -> Option<u8> {
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

impl Unescape {
    /// Whether half of a surrogate pair waits for its partner.
    pub(super) fn waits(&self) -> bool {
        self.high.is_some()
    }

    /// Gives up waiting for the partner: what stands for the lone half, if there is one.
    pub(super) fn give_up(&mut self) -> Option<char> {
        self.high.take().map(|_| REPLACEMENT)
    }

    /// The next byte after the backslash.
    pub(super) fn push(&mut self, byte: u8) -> Step {
        let Some(mut unit) = self.unit.take() else {
            return self.begin(byte);
        };
        let Some(digit) = char::from(byte).to_digit(16) else {
            return Step::Invalid;
        };
        unit.value = (unit.value << 4) | digit as u16;
        unit.digits += 1;
        if unit.digits < 4 {
            self.unit = Some(unit);
            return Step::More;
        }
        self.end(unit.value)
    }

    fn begin(&mut self, letter: u8) -> Step {
        if letter == b'u' {
            self.unit = Some(Unit::default());
            return Step::More;
        }
        match short(letter) {
            Some(byte) => Step::Done([self.give_up(), Some(char::from(byte))]),
            None => Step::Invalid,
        }
    }

    fn end(&mut self, unit: u16) -> Step {
        let high = self.high.take();
        match (high, unit) {
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
                let this = char::from_u32(u32::from(unit)).unwrap_or(REPLACEMENT);
                Step::Done([high.map(|_| REPLACEMENT), Some(this)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    /// Unescapes text that consists of escapes alone.
    fn unescape(escapes: &str) -> Option<String> {
        let mut state = Unescape::default();
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
        text.extend(state.give_up());
        Some(text)
    }

    #[test]
    fn reads_every_kind_of_escape() {
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
    fn refuses_what_is_no_escape() {
        assert_eq!(unescape(r"\x41"), None);
        assert_eq!(unescape(r"\u00g1"), None);
    }
}
