//! A JSON scanner for text that arrives in pieces.
//!
//! The scanner pushes what it sees into a [`Visit`]: no document, no token buffer, nothing that grows with the text. String
//! contents go through as slices of the caller's piece wherever no escape interrupts them, because nearly all bytes of a
//! request are string contents. Pull parsers were rejected: proxy hosts hand over a body piece by piece, and a puller would
//! have to keep what it could not finish.
//!
//! It accepts a little more than JSON (raw control characters in strings, `01`, lone surrogates): the engine behind is the
//! judge of a request, this only has to find its way. It never accepts text whose structure is in doubt.

mod buffer;
mod nesting;
mod scanner;
mod unescape;

pub(crate) use scanner::{Fault, Scanner};

/// What a value that holds other values is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `{}`
    Object,
    /// `[]`
    Array,
}

/// Who wants to know what is in the text.
pub(crate) trait Visit {
    /// An object or array begins.
    fn open(&mut self, kind: Kind);
    /// It ends.
    fn close(&mut self);
    /// A member's name. One longer than [`buffer::KEY_BYTES_MAX`] comes as a digest that equals no real name.
    fn key(&mut self, key: &[u8]);
    /// A string begins.
    fn string_start(&mut self);
    /// More of its contents, unescaped.
    fn string_part(&mut self, part: &[u8]);
    /// It ends.
    fn string_end(&mut self);
    /// A number, `true`, `false` or `null`, as it is spelled.
    fn literal(&mut self, literal: &[u8]);
}
