//! The scanner's state machine.

use memchr::memchr2;

use super::escape::{EscapeDecoder, Step, single_letter};
use super::fixed_buffer::{FixedBuffer, KEY_BYTES_MAX, LITERAL_BYTES_MAX};
use super::nesting::ContainerStack;
use super::{BodyError, Container, Visitor};

/// The next thing that the scanner expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The object that is the whole text.
    Start,
    /// A byte order mark in front of the object, of which these bytes are left.
    ByteOrderMark(&'static [u8]),
    Value,
    ValueOrEnd,
    /// A member's name or the end of the object.
    KeyOrEnd,
    Key,
    /// The colon after a member's name.
    Colon,
    /// A comma or the end of the innermost container.
    CommaOrEnd,
    String(StringKind),
    Escape(StringKind),
    /// Bytes of a number, `true`, `false` or `null`.
    Literal,
    /// Nothing but white space.
    End,
    /// Nothing: the rest of the text is ignored.
    Failed(BodyError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringKind {
    Key,
    Value,
}

/// Reads one JSON object that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    nesting: ContainerStack,
    escape: EscapeDecoder,
    key: FixedBuffer<KEY_BYTES_MAX>,
    literal: FixedBuffer<LITERAL_BYTES_MAX>,
}

type Rest<'a> = Result<&'a [u8], BodyError>;

impl Scanner {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            nesting: ContainerStack::default(),
            escape: EscapeDecoder::default(),
            key: FixedBuffer::new(),
            literal: FixedBuffer::new(),
        }
    }

    /// Whether the object has ended with nothing after it.
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// Whether the object has begun and not ended, without an error.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(
            self.state,
            State::Start | State::ByteOrderMark(_) | State::End | State::Failed(_)
        )
    }

    pub(crate) fn error(&self) -> Option<BodyError> {
        match self.state {
            State::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Reads the next piece of the text.
    pub(crate) fn feed(&mut self, mut piece: &[u8], visitor: &mut impl Visitor) {
        while !piece.is_empty() {
            let rest = match self.state {
                State::String(StringKind::Value) => self.string(piece, visitor),
                State::String(StringKind::Key) => self.name(piece, visitor),
                State::Escape(kind) => self.escape(kind, piece, visitor),
                State::Literal => self.literal(piece, visitor),
                State::Failed(_) => return,
                _ => self.structure(piece, visitor),
            };
            match rest {
                Ok(rest) => piece = rest,
                Err(error) => self.state = State::Failed(error),
            }
        }
    }

    /// Reads one byte outside strings and literals.
    #[inline]
    fn structure<'a>(&mut self, piece: &'a [u8], visitor: &mut impl Visitor) -> Rest<'a> {
        let Some((&byte, rest)) = piece.split_first() else {
            return Ok(piece);
        };
        if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            return Ok(rest);
        }
        match (self.state, byte) {
            (State::Start, b'{') => self.open(Container::Object, visitor)?,
            (State::Start, 0xEF) => self.state = State::ByteOrderMark(&[0xBB, 0xBF]),
            (State::ByteOrderMark([expected, rest @ ..]), byte) if *expected == byte => {
                self.state = match rest {
                    [] => State::Start,
                    rest => State::ByteOrderMark(rest),
                };
            }
            (State::Start | State::ByteOrderMark(_), _) => return Err(BodyError::NotJson),
            (State::Value | State::ValueOrEnd, b'{') => self.open(Container::Object, visitor)?,
            (State::Value | State::ValueOrEnd, b'[') => self.open(Container::Array, visitor)?,
            (State::Value | State::ValueOrEnd, b'"') => {
                visitor.string_start();
                self.state = State::String(StringKind::Value);
            }
            (State::ValueOrEnd | State::CommaOrEnd, b']') => {
                self.close(Container::Array, visitor)?
            }
            (
                State::Value | State::ValueOrEnd,
                b'-' | b'0'..=b'9' | b't' | b'f' | b'n' | b'N' | b'I',
            ) => {
                self.literal.clear();
                self.state = State::Literal;
                return Ok(piece);
            }
            (State::KeyOrEnd | State::Key, b'"') => {
                self.key.clear();
                self.state = State::String(StringKind::Key);
            }
            (State::KeyOrEnd | State::CommaOrEnd, b'}') => {
                self.close(Container::Object, visitor)?
            }
            (State::Colon, b':') => self.state = State::Value,
            (State::CommaOrEnd, b',') => {
                self.state = match self.nesting.innermost() {
                    Some(Container::Object) => State::Key,
                    _ => State::Value,
                };
            }
            _ => return Err(BodyError::Malformed),
        }
        Ok(rest)
    }

    fn open(&mut self, kind: Container, visitor: &mut impl Visitor) -> Result<(), BodyError> {
        if !self.nesting.push(kind) {
            return Err(BodyError::TooDeep);
        }
        visitor.open(kind);
        self.state = match kind {
            Container::Object => State::KeyOrEnd,
            Container::Array => State::ValueOrEnd,
        };
        Ok(())
    }

    fn close(&mut self, kind: Container, visitor: &mut impl Visitor) -> Result<(), BodyError> {
        if self.nesting.innermost() != Some(kind) {
            return Err(BodyError::Malformed);
        }
        self.nesting.pop();
        visitor.close();
        self.state = match self.nesting.innermost() {
            Some(_) => State::CommaOrEnd,
            None => State::End,
        };
        Ok(())
    }

    /// The replacement of a pending surrogate, if no escape follows that could complete the pair.
    #[inline]
    fn lone_surrogate(&mut self, piece: &[u8]) -> Option<char> {
        let can_complete = matches!(piece, [] | [b'\\', ..]);
        if self.escape.has_pending_surrogate() && !can_complete {
            self.escape.take_lone_surrogate()
        } else {
            None
        }
    }

    /// Reads contents of a string value. This is the hot loop.
    #[inline]
    fn string<'a>(&mut self, mut piece: &'a [u8], visitor: &mut impl Visitor) -> Rest<'a> {
        loop {
            if let Some(lone) = self.lone_surrogate(piece) {
                visitor.string_part(lone.encode_utf8(&mut [0; 4]).as_bytes());
            }
            let Some(at) = memchr2(b'"', b'\\', piece) else {
                if !piece.is_empty() {
                    visitor.string_part(piece);
                }
                return Ok(&[]);
            };
            let (part, rest) = piece.split_at(at);
            if !part.is_empty() {
                visitor.string_part(part);
            }
            match rest {
                [b'"', rest @ ..] => {
                    visitor.string_end();
                    self.state = State::CommaOrEnd;
                    return Ok(rest);
                }
                // Most escapes are line ends: they do not leave this loop.
                [b'\\', letter, rest @ ..]
                    if *letter != b'u' && !self.escape.has_pending_surrogate() =>
                {
                    visitor.string_part(&[single_letter(*letter).ok_or(BodyError::Malformed)?]);
                    piece = rest;
                }
                [_, rest @ ..] => {
                    self.state = State::Escape(StringKind::Value);
                    return Ok(rest);
                }
                [] => return Ok(&[]),
            }
        }
    }

    /// Reads contents of a member's name.
    fn name<'a>(&mut self, piece: &'a [u8], visitor: &mut impl Visitor) -> Rest<'a> {
        if let Some(lone) = self.lone_surrogate(piece) {
            self.key.push_name(lone.encode_utf8(&mut [0; 4]).as_bytes());
        }
        let Some(at) = memchr2(b'"', b'\\', piece) else {
            self.key.push_name(piece);
            return Ok(&[]);
        };
        let (part, rest) = piece.split_at(at);
        let Some((&stop, rest)) = rest.split_first() else {
            return Ok(&[]);
        };
        if stop == b'\\' {
            self.key.push_name(part);
            self.state = State::Escape(StringKind::Key);
            return Ok(rest);
        }
        if self.key.bytes().is_empty() && part.len() <= KEY_BYTES_MAX {
            visitor.key(part);
        } else {
            self.key.push_name(part);
            visitor.key(self.key.bytes());
        }
        self.state = State::Colon;
        Ok(rest)
    }

    fn escape<'a>(
        &mut self,
        kind: StringKind,
        piece: &'a [u8],
        visitor: &mut impl Visitor,
    ) -> Rest<'a> {
        let Some((&byte, rest)) = piece.split_first() else {
            return Ok(piece);
        };
        match self.escape.push(byte) {
            Step::More => {}
            Step::Invalid => return Err(BodyError::Malformed),
            Step::Done(chars) => {
                for char in chars.into_iter().flatten() {
                    let mut utf8 = [0; 4];
                    let part = char.encode_utf8(&mut utf8).as_bytes();
                    match kind {
                        StringKind::Key => self.key.push_name(part),
                        StringKind::Value => visitor.string_part(part),
                    }
                }
                self.state = State::String(kind);
            }
        }
        Ok(rest)
    }

    /// Reads a literal up to the byte that ends it.
    #[inline]
    fn literal<'a>(&mut self, piece: &'a [u8], visitor: &mut impl Visitor) -> Rest<'a> {
        // A prompt of token ids is tens of thousands of whole numbers: each byte of those is examined once.
        if self.literal.bytes().is_empty()
            && let Some(end @ 1..=LITERAL_BYTES_MAX) =
                piece.iter().position(|byte| !byte.is_ascii_digit())
            && let (number, rest @ [b',' | b']', ..]) = piece.split_at(end)
        {
            visitor.literal(number);
            self.state = State::CommaOrEnd;
            return Ok(rest);
        }
        let end = piece
            .iter()
            .position(|byte| matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t'));
        let (part, rest) = piece.split_at(end.unwrap_or(piece.len()));
        let literal = if self.literal.bytes().is_empty() && end.is_some() {
            part
        } else {
            if !self.literal.push(part).is_empty() {
                return Err(BodyError::Malformed);
            }
            self.literal.bytes()
        };
        if end.is_some() {
            if !is_literal(literal) {
                return Err(BodyError::Malformed);
            }
            visitor.literal(literal);
            self.state = State::CommaOrEnd;
        }
        Ok(rest)
    }
}

fn is_literal(text: &[u8]) -> bool {
    match text {
        b"true" | b"false" | b"null" | b"NaN" | b"Infinity" | b"-Infinity" => true,
        [b'-' | b'0'..=b'9', ..] => {
            text.len() <= LITERAL_BYTES_MAX
                && text
                    .iter()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'))
        }
        _ => false,
    }
}
