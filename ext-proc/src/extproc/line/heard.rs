//! What the filter says, read where it lies.
//!
//! A request is a dozen headers, each of them a name and a value, and all that is wanted of most is a look. To decode
//! them as [`isotherm_line`] describes them makes two allocations for each, and took a fifth of the time that a line needs
//! to answer a request and to take in its end; so the service reads the message in the buffer that it came in. The tests
//! hold it against the description.

/// The headers that there is room for at first: as many as the filter writes.
const HEADERS_USUALLY: usize = 12;

/// Tags, as [`isotherm_line`] gives them.
mod tag {
    pub(super) const ASKS: u64 = 1;
    pub(super) const ENDS: u64 = 2;
    pub(super) const ID: u64 = 1;
    pub(super) const HEADERS: u64 = 2;
    pub(super) const OUTCOME: u64 = 2;
    pub(super) const NAME: u64 = 1;
    pub(super) const VALUE: u64 = 2;
}

/// What cannot be read: nobody who speaks this protocol writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// One thing that the filter says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard<'a> {
    /// A request wants to know where to go.
    Ask(Ask<'a>),
    /// A request has ended.
    End(End<'a>),
}

/// A request that wants to know where to go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ask<'a> {
    pub(super) id: u32,
    pub(super) headers: Vec<(&'a str, &'a [u8])>,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct End<'a> {
    pub(super) id: u32,
    pub(super) outcome: &'a [u8],
}

/// What a message says, in its order.
pub(super) fn read(message: &[u8]) -> impl Iterator<Item = Result<Heard<'_>, Malformed>> {
    let heard = Fields(message).map(|field| match field? {
        (tag::ASKS, Value::Bytes(ask)) => Ask::read(ask).map(|ask| Some(Heard::Ask(ask))),
        (tag::ENDS, Value::Bytes(end)) => End::read(end).map(|end| Some(Heard::End(end))),
        (tag::ASKS | tag::ENDS, _) => Err(Malformed),
        _ => Ok(None),
    });
    heard.filter_map(Result::transpose)
}

impl<'a> Ask<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut ask = Self {
            id: 0,
            headers: Vec::with_capacity(HEADERS_USUALLY),
        };
        for field in Fields(bytes) {
            match field? {
                (tag::ID, Value::Number(id)) => ask.id = id_of(id),
                (tag::HEADERS, Value::Bytes(bytes)) => ask.headers.push(header(bytes)?),
                (tag::ID | tag::HEADERS, _) => return Err(Malformed),
                _ => {}
            }
        }
        Ok(ask)
    }
}

impl<'a> End<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut end = Self::default();
        for field in Fields(bytes) {
            match field? {
                (tag::ID, Value::Number(id)) => end.id = id_of(id),
                (tag::OUTCOME, Value::Bytes(outcome)) => end.outcome = outcome,
                (tag::ID | tag::OUTCOME, _) => return Err(Malformed),
                _ => {}
            }
        }
        Ok(end)
    }
}

fn header(bytes: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let (mut name, mut value) = ("", &[][..]);
    for field in Fields(bytes) {
        match field? {
            (tag::NAME, Value::Bytes(text)) => {
                name = str::from_utf8(text).map_err(|_| Malformed)?;
            }
            (tag::VALUE, Value::Bytes(bytes)) => value = bytes,
            (tag::NAME | tag::VALUE, _) => return Err(Malformed),
            _ => {}
        }
    }
    Ok((name, value))
}

/// A number of 32 bits is the low half of what is written, in Protocol Buffers.
#[expect(clippy::cast_possible_truncation, reason = "that is how it is defined")]
fn id_of(number: u64) -> u32 {
    number as u32
}

/// A field's value, as far as it is wanted.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed length, which this protocol has nowhere.
    Fixed,
}

/// The fields of a message: their tags and values.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let key = self.number()?;
        let tag = key >> 3;
        if tag == 0 || key > u64::from(u32::MAX) {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Number(self.number()?),
            1 => self.bytes(8).map(|_| Value::Fixed)?,
            2 => {
                let length = self.number()?;
                Value::Bytes(self.bytes(length)?)
            }
            5 => self.bytes(4).map(|_| Value::Fixed)?,
            // Groups, which nobody writes any more.
            _ => return Err(Malformed),
        };
        Ok((tag, value))
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            // The tenth byte has room for one bit.
            if shift == 63 && byte > 1 {
                return Err(Malformed);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Nothing behind it makes sense.
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use isotherm_line::{FromFilter, Header};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    /// The same, owned.
    fn owned(message: &[u8]) -> Result<FromFilter, Malformed> {
        let mut all = FromFilter::default();
        for heard in read(message) {
            match heard? {
                Heard::Ask(ask) => {
                    let headers = ask.headers.into_iter();
                    let headers = headers.map(|(name, value)| Header {
                        name: name.to_owned(),
                        value: value.to_owned(),
                    });
                    all.asks.push(isotherm_line::Ask {
                        id: ask.id,
                        headers: headers.collect(),
                    });
                }
                Heard::End(end) => all.ends.push(isotherm_line::End {
                    id: end.id,
                    outcome: end.outcome.to_owned(),
                }),
            }
        }
        Ok(all)
    }

    fn messages() -> impl Strategy<Value = FromFilter> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        let header = (".{0,20}", bytes()).prop_map(|(name, value)| Header { name, value });
        let headers = prop::collection::vec(header, 0..6);
        let ask =
            (any::<u32>(), headers).prop_map(|(id, headers)| isotherm_line::Ask { id, headers });
        let end =
            (any::<u32>(), bytes()).prop_map(|(id, outcome)| isotherm_line::End { id, outcome });
        (
            prop::collection::vec(ask, 0..4),
            prop::collection::vec(end, 0..4),
        )
            .prop_map(|(asks, ends)| FromFilter { asks, ends })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(message in messages()) {
            prop_assert_eq!(owned(&message.encode_to_vec()), Ok(message));
        }

        /// A field that a later version writes is passed over by both, and what is cut or bent is refused by both.
        #[test]
        fn what_is_bent_is_read_as_its_description_reads_it(
            message in messages(),
            places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            keep in any::<prop::sample::Index>(),
        ) {
            let mut bytes = message.encode_to_vec();
            for (place, byte) in places {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = byte;
                }
            }
            bytes.truncate(keep.index(bytes.len() + 1));
            let described = FromFilter::decode(&*bytes).ok();
            match owned(&bytes) {
                Ok(read) => prop_assert_eq!(Some(read), described),
                // Groups are passed over there, and refused here.
                Err(Malformed) => prop_assert!(described.is_none() || may_hold_a_group(&bytes)),
            }
        }

        #[test]
        fn nothing_that_comes_in_is_too_much(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(read) = owned(&bytes) {
                prop_assert_eq!(Some(read), FromFilter::decode(&*bytes).ok());
            }
        }
    }

    /// Whether any byte could begin a group.
    fn may_hold_a_group(bytes: &[u8]) -> bool {
        bytes.iter().any(|byte| byte & 7 == 3)
    }
}
