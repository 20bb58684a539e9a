//! A push scanner for one JSON object whose text arrives in pieces.
//!
//! The scanner calls a [`Visitor`] and builds no document and no token buffer, so its memory does not grow with the text.
//! String contents reach the visitor as slices of the caller's piece wherever no escape interrupts them. The scanner accepts a
//! little more than JSON: a byte order mark in front, raw control characters in strings, `01`, lone surrogates, and the `NaN`
//! and `Infinity` that Python writes and engines read. The engine validates the request. The scanner never accepts text
//! whose structure is in doubt.

mod escape;
mod fixed_buffer;
mod nesting;
mod scanner;

pub(crate) use scanner::Scanner;

/// The reason why a body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BodyError {
    /// The body does not begin as a JSON object: compressed, a form, another format.
    NotJson,
    /// The body begins as a JSON object and breaks the grammar later.
    Malformed,
    /// The body has too many levels of nesting.
    TooDeep,
    /// A member that matters stands twice in one object, or two members state one part of the prompt. Engines read another
    /// prompt from such a body than a reader of a stream.
    RepeatedMember,
}

impl BodyError {
    /// The name of this error in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::Malformed => "malformed",
            Self::TooDeep => "too_deep",
            Self::RepeatedMember => "repeated_member",
        }
    }
}

/// The kind of a value that contains other values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Container {
    Object,
    Array,
}

/// Receives the contents of the text in order.
pub(crate) trait Visitor {
    /// An object or array begins.
    fn open(&mut self, kind: Container);
    /// The innermost object or array ends.
    fn close(&mut self);
    /// The name of a member. A name longer than [`fixed_buffer::KEY_BYTES_MAX`] is replaced by a digest that equals no real name.
    fn key(&mut self, key: &[u8]);
    fn string_start(&mut self);
    /// The next contents of the string, unescaped.
    fn string_part(&mut self, part: &[u8]);
    fn string_end(&mut self);
    /// A number, `true`, `false` or `null`, as the text spells it.
    fn literal(&mut self, literal: &[u8]);
}
