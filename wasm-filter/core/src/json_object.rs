//! The members of a JSON object in the middle of other text.
//!
//! Each member is found by itself, so one of an odd type or with a number that no parser takes costs none of the others. A
//! parser of whole objects, such as serde's, refuses all of them.

use std::ops::Range;

/// The reason why a text has no members to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectError {
    /// The text ends within the object.
    Cut,
    /// The text does not begin with an object, or the object breaks the grammar.
    Malformed,
}

/// An object that stands at the beginning of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonObject {
    /// The name and the value of each member, as places in the text. A name is without its quotes.
    pub(crate) members: Vec<(Range<usize>, Range<usize>)>,
    /// The length of the object.
    pub(crate) bytes: usize,
}

impl JsonObject {
    /// Reads the object with which a text begins.
    pub(crate) fn read(text: &[u8]) -> Result<Self, ObjectError> {
        let mut reader = Reader { text, at: 0 };
        let mut members = Vec::new();
        reader.expect(b'{')?;
        loop {
            match reader.next()? {
                b'}' => break,
                b',' => continue,
                b'"' => {}
                _ => return Err(ObjectError::Malformed),
            }
            let name = reader.string()?;
            reader.skip_space();
            reader.expect(b':')?;
            reader.skip_space();
            let value = reader.value()?;
            members.push((name, value));
        }
        Ok(Self {
            members,
            bytes: reader.at,
        })
    }

    /// The place of the value of the last member of this name, which is the one that parsers take.
    pub(crate) fn place(&self, text: &[u8], name: &[u8]) -> Option<Range<usize>> {
        let mut members = self.members.iter().rev();
        let found = members.find(|(known, _)| text.get(known.clone()) == Some(name));
        found.map(|(_, value)| value.clone())
    }

    /// The value of the last member of this name.
    pub(crate) fn value<'a>(&self, text: &'a [u8], name: &str) -> Option<&'a [u8]> {
        text.get(self.place(text, name.as_bytes())?)
    }
}

/// Reads a count: a whole number, however it is written.
pub(crate) fn count(value: &[u8]) -> Option<u32> {
    let text = str::from_utf8(value).ok()?;
    // A number in JSON begins so; `f64` also reads `inf` and `+1`.
    if !text.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        let is_count = number.fract() == 0.0 && number <= f64::from(u32::MAX);
        is_count.then_some(number as u32)
    })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// The next byte behind white space.
    fn next(&mut self) -> Result<u8, ObjectError> {
        self.skip_space();
        let byte = self.text.get(self.at).ok_or(ObjectError::Cut)?;
        self.at += 1;
        Ok(*byte)
    }

    fn expect(&mut self, expected: u8) -> Result<(), ObjectError> {
        match self.next()? {
            byte if byte == expected => Ok(()),
            _ => Err(ObjectError::Malformed),
        }
    }

    fn skip_space(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.len() - rest.trim_ascii_start().len();
    }

    /// The place of the string whose opening quote was read.
    fn string(&mut self) -> Result<Range<usize>, ObjectError> {
        let start = self.at;
        loop {
            let byte = self.text.get(self.at).ok_or(ObjectError::Cut)?;
            self.at += match byte {
                b'\\' => 2,
                _ => 1,
            };
            if *byte == b'"' {
                return Ok(start..self.at - 1);
            }
        }
    }

    /// The place of the value that begins here.
    fn value(&mut self) -> Result<Range<usize>, ObjectError> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            let byte = *self.text.get(self.at).ok_or(ObjectError::Cut)?;
            match byte {
                b'"' => {
                    self.at += 1;
                    self.string()?;
                    if depth == 0 {
                        return Ok(start..self.at);
                    }
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' | b',' if depth == 0 => {
                    let value = self.text.get(start..self.at).unwrap_or_default();
                    return Ok(start..start + value.trim_ascii_end().len());
                }
                b'}' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        self.at += 1;
                        return Ok(start..self.at);
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{ "a" : 1 , "b":{"a":[2,"}"]}, "c\"":"x,\"}" ,"d":NaN,"a": -3 } "a":4"#;

    #[test]
    fn every_member_is_found_by_itself() {
        let text = OBJECT.as_bytes();
        let object = JsonObject::read(text).unwrap();
        let text_of = |place: Range<usize>| &OBJECT[place];
        let members: Vec<_> = object
            .members
            .iter()
            .map(|(name, value)| (text_of(name.clone()), text_of(value.clone())))
            .collect();
        let expected = [
            ("a", "1"),
            ("b", r#"{"a":[2,"}"]}"#),
            (r#"c\""#, r#""x,\"}""#),
            ("d", "NaN"),
            ("a", "-3"),
        ];
        assert_eq!(members, expected);
        assert_eq!(&OBJECT[object.bytes..], r#" "a":4"#);
        assert_eq!(object.value(text, "a"), Some(b"-3".as_slice()));
        assert_eq!(object.value(text, "x"), None);
    }

    #[test]
    fn a_text_that_ends_early_is_cut() {
        let end = JsonObject::read(OBJECT.as_bytes()).unwrap().bytes;
        for bytes in 0..end {
            let cut = JsonObject::read(&OBJECT.as_bytes()[..bytes]);
            assert_eq!(cut, Err(ObjectError::Cut), "{bytes}");
        }
        for other in ["[1]", "1", r#"{"a" 1}"#, "{a:1}", r#"{"a":1]"#] {
            let read = JsonObject::read(other.as_bytes());
            assert_eq!(read, Err(ObjectError::Malformed), "{other}");
        }
    }

    #[test]
    fn a_count_is_a_whole_number() {
        for (text, value) in [
            ("0", 0),
            ("7.0", 7),
            ("1.024e3", 1024),
            ("4294967295", u32::MAX),
        ] {
            assert_eq!(count(text.as_bytes()), Some(value), "{text}");
        }
        for text in [
            "",
            "-1",
            "7.5",
            "4294967296",
            "1e400",
            "\"7\"",
            "null",
            "NaN",
            "inf",
            "+1",
            "[]",
        ] {
            assert_eq!(count(text.as_bytes()), None, "{text}");
        }
    }
}
