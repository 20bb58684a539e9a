//! The state machine.

use memchr::memchr2;

use super::buffer::{Buffer, KEY_BYTES_MAX, LITERAL_BYTES_MAX};
use super::nesting::Nesting;
use super::unescape::{Step, Unescape, short};
use super::{Kind, Visit};

/// Why the text cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not begin as an object does.
    NotAnObject,
    /// It breaks the grammar.
    Grammar,
    /// It has more than [`super::nesting::DEPTH_MAX`] open objects and arrays.
    Depth,
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The object that is the whole text.
    Start,
    /// A value.
    Value,
    /// A value, or the end of the array.
    ValueOrEnd,
    /// A member's name, or the end of the object.
    KeyOrEnd,
    /// A member's name.
    Key,
    /// The colon behind a member's name.
    Colon,
    /// A comma, or the end of what is open.
    CommaOrEnd,
    /// More of a string.
    String(Role),
    /// More of an escape in a string.
    Escape(Role),
    /// More of a number, `true`, `false` or `null`.
    Literal,
    /// Nothing but blanks.
    End,
    /// Nothing any more.
    Failed(Fault),
}

/// What a string is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

/// Reads one JSON object that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    nesting: Nesting,
    unescape: Unescape,
    key: Buffer<KEY_BYTES_MAX>,
    literal: Buffer<LITERAL_BYTES_MAX>,
}

/// What is left of a piece.
type Rest<'a> = Result<&'a [u8], Fault>;

impl Scanner {
    /// Before the first byte.
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            nesting: Nesting::default(),
            unescape: Unescape::default(),
            key: Buffer::default(),
            literal: Buffer::default(),
        }
    }

    /// Whether the object has ended, with nothing behind it.
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// Why the text cannot be read further.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self.state {
            State::Failed(fault) => Some(fault),
            _ => None,
        }
    }

    /// The next piece of the text.
    pub(crate) fn feed(&mut self, mut piece: &[u8], visit: &mut impl Visit) {
        while !piece.is_empty() {
            let rest = match self.state {
                State::String(Role::Value) => self.string(piece, visit),
                State::String(Role::Key) => self.name(piece, visit),
                State::Escape(role) => self.escape(role, piece, visit),
                State::Literal => self.literal(piece, visit),
                State::Failed(_) => return,
                _ => self.structure(piece, visit),
            };
            match rest {
                Ok(rest) => piece = rest,
                Err(fault) => self.state = State::Failed(fault),
            }
        }
    }

    /// One byte between values.
    #[inline]
    fn structure<'a>(&mut self, piece: &'a [u8], visit: &mut impl Visit) -> Rest<'a> {
        let Some((&byte, rest)) = piece.split_first() else {
            return Ok(piece);
        };
        if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
            return Ok(rest);
        }
        match (self.state, byte) {
            (State::Start, b'{') => self.open(Kind::Object, visit)?,
            (State::Start, _) => return Err(Fault::NotAnObject),
            (State::Value | State::ValueOrEnd, b'{') => self.open(Kind::Object, visit)?,
            (State::Value | State::ValueOrEnd, b'[') => self.open(Kind::Array, visit)?,
            (State::Value | State::ValueOrEnd, b'"') => {
                visit.string_start();
                self.state = State::String(Role::Value);
            }
            (State::ValueOrEnd | State::CommaOrEnd, b']') => self.close(Kind::Array, visit)?,
            (State::Value | State::ValueOrEnd, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.literal.clear();
                self.state = State::Literal;
                return Ok(piece);
            }
            (State::KeyOrEnd | State::Key, b'"') => {
                self.key.clear();
                self.state = State::String(Role::Key);
            }
            (State::KeyOrEnd | State::CommaOrEnd, b'}') => self.close(Kind::Object, visit)?,
            (State::Colon, b':') => self.state = State::Value,
            (State::CommaOrEnd, b',') => {
                self.state = match self.nesting.innermost() {
                    Some(Kind::Object) => State::Key,
                    _ => State::Value,
                };
            }
            _ => return Err(Fault::Grammar),
        }
        Ok(rest)
    }

    fn open(&mut self, kind: Kind, visit: &mut impl Visit) -> Result<(), Fault> {
        if !self.nesting.push(kind) {
            return Err(Fault::Depth);
        }
        visit.open(kind);
        self.state = match kind {
            Kind::Object => State::KeyOrEnd,
            Kind::Array => State::ValueOrEnd,
        };
        Ok(())
    }

    fn close(&mut self, kind: Kind, visit: &mut impl Visit) -> Result<(), Fault> {
        if self.nesting.innermost() != Some(kind) {
            return Err(Fault::Grammar);
        }
        self.nesting.pop();
        visit.close();
        self.state = match self.nesting.innermost() {
            Some(_) => State::CommaOrEnd,
            None => State::End,
        };
        Ok(())
    }

    /// Contents of a string value: the hot loop.
    #[inline]
    fn string<'a>(&mut self, mut piece: &'a [u8], visit: &mut impl Visit) -> Rest<'a> {
        loop {
            if self.unescape.waits()
                && piece.first().is_some_and(|byte| *byte != b'\\')
                && let Some(lone) = self.unescape.give_up()
            {
                visit.string_part(lone.encode_utf8(&mut [0; 4]).as_bytes());
            }
            let Some(at) = memchr2(b'"', b'\\', piece) else {
                if !piece.is_empty() {
                    visit.string_part(piece);
                }
                return Ok(&[]);
            };
            let (part, rest) = piece.split_at(at);
            if !part.is_empty() {
                visit.string_part(part);
            }
            match rest {
                [b'"', rest @ ..] => {
                    visit.string_end();
                    self.state = State::CommaOrEnd;
                    return Ok(rest);
                }
                // Most escapes are line ends: no detour for those.
                [b'\\', letter, rest @ ..] if *letter != b'u' && !self.unescape.waits() => {
                    visit.string_part(&[short(*letter).ok_or(Fault::Grammar)?]);
                    piece = rest;
                }
                [_, rest @ ..] => {
                    self.state = State::Escape(Role::Value);
                    return Ok(rest);
                }
                [] => return Ok(&[]),
            }
        }
    }

    /// Contents of a member's name.
    fn name<'a>(&mut self, piece: &'a [u8], visit: &mut impl Visit) -> Rest<'a> {
        if self.unescape.waits()
            && piece.first().is_some_and(|byte| *byte != b'\\')
            && let Some(lone) = self.unescape.give_up()
        {
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
            self.state = State::Escape(Role::Key);
            return Ok(rest);
        }
        if self.key.bytes().is_empty() && part.len() <= KEY_BYTES_MAX {
            visit.key(part);
        } else {
            self.key.push_name(part);
            visit.key(self.key.bytes());
        }
        self.state = State::Colon;
        Ok(rest)
    }

    /// One byte of an escape.
    fn escape<'a>(&mut self, role: Role, piece: &'a [u8], visit: &mut impl Visit) -> Rest<'a> {
        let Some((&byte, rest)) = piece.split_first() else {
            return Ok(piece);
        };
        match self.unescape.push(byte) {
            Step::More => {}
            Step::Invalid => return Err(Fault::Grammar),
            Step::Done(chars) => {
                for char in chars.into_iter().flatten() {
                    let mut utf8 = [0; 4];
                    let part = char.encode_utf8(&mut utf8).as_bytes();
                    match role {
                        Role::Key => self.key.push_name(part),
                        Role::Value => visit.string_part(part),
                    }
                }
                self.state = State::String(role);
            }
        }
        Ok(rest)
    }

    /// A literal, up to what ends it.
    #[inline]
    fn literal<'a>(&mut self, piece: &'a [u8], visit: &mut impl Visit) -> Rest<'a> {
        // A prompt of token ids is tens of thousands of whole numbers: those take one look at each byte.
        if self.literal.bytes().is_empty()
            && let Some(end @ 1..=LITERAL_BYTES_MAX) =
                piece.iter().position(|byte| !byte.is_ascii_digit())
            && let (number, rest @ [b',' | b']', ..]) = piece.split_at(end)
        {
            visit.literal(number);
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
                return Err(Fault::Grammar);
            }
            self.literal.bytes()
        };
        if end.is_some() {
            if !is_literal(literal) {
                return Err(Fault::Grammar);
            }
            visit.literal(literal);
            self.state = State::CommaOrEnd;
        }
        Ok(rest)
    }
}

fn is_literal(text: &[u8]) -> bool {
    match text {
        b"true" | b"false" | b"null" => true,
        [b'-' | b'0'..=b'9', ..] => {
            text.len() <= LITERAL_BYTES_MAX
                && text
                    .iter()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'))
        }
        _ => false,
    }
}
