//! Decides from the position of each JSON value how it enters the prompt.

use alloc::vec::Vec;
use core::mem;

use super::marks;
use super::members::MemberFinder;
use super::prompt::PromptWriter;
use crate::Api;
use crate::json::{Container, Visitor};
use crate::leaves::Digest;
use crate::shape::message::{is_media_encoding, message_member, part_member};
use crate::shape::{self, Attribute, CacheKey, Member, Mode};

/// The nesting of a usual request, so that most requests allocate once.
const DEPTH_EXPECTED: usize = 16;

/// The member that moves between the values of a conversation and renders nowhere.
const CACHE_CONTROL: &[u8] = b"cache_control";

/// An open object or array.
#[derive(Clone, Copy, Debug)]
struct Frame {
    mode: Mode,
    kind: Container,
    /// Whether the array contains a token id.
    has_tokens: bool,
}

/// The destination of the string that is arriving.
#[derive(Clone, Copy, Debug)]
enum Sink {
    Discard,
    Text,
    /// The text of a message that consists of text alone.
    Message {
        has_default_role: bool,
    },
    Medium,
    CacheKey(CacheKey),
    Attribute(Attribute),
}

/// Receives the contents of a request from the scanner.
#[derive(Debug)]
pub(super) struct RequestVisitor {
    api: Api,
    pub(super) prompt: PromptWriter,
    pub(super) members: MemberFinder,
    pub(super) stream: Option<bool>,
    pub(super) output_tokens_max: Option<u32>,
    frames: Vec<Frame>,
    /// The mode of the value of the member whose name came last.
    member: Mode,
    sink: Sink,
    digest: Digest,
}

impl RequestVisitor {
    pub(super) fn new(api: Api, members: MemberFinder) -> Self {
        Self {
            api,
            prompt: PromptWriter::new(),
            members,
            stream: None,
            output_tokens_max: None,
            frames: Vec::with_capacity(DEPTH_EXPECTED),
            member: Mode::Request,
            sink: Sink::Discard,
            digest: Digest::default(),
        }
    }

    /// The mode of the value that begins.
    fn mode(&self) -> Mode {
        match self.frames.last() {
            Some(frame) if frame.kind == Container::Array => frame.mode.of_element(),
            _ => self.member,
        }
    }

    /// Begins a member of the request or of an object in it.
    ///
    /// The first of several members that is not empty wins. Parsers take the last one, which is unknown before the end.
    fn begin_member(&mut self, member: Option<Member>) -> Mode {
        let Some(Member { section, mode }) = member else {
            return Mode::Skip;
        };
        let is_first = match (section, mode) {
            (Some(section), _) => self.prompt.begin_section(section),
            (None, Mode::CacheKey(key)) => !self.prompt.has_cache_key(key),
            (None, _) => true,
        };
        if is_first { mode } else { Mode::Skip }
    }

    fn token(&mut self, literal: &[u8]) {
        let Some(id) = parse_number(literal) else {
            return;
        };
        // One mark precedes a list of ids, or an id outside a list.
        let is_marked = match self.frames.last_mut() {
            Some(frame) if frame.kind == Container::Array => {
                mem::replace(&mut frame.has_tokens, true)
            }
            _ => false,
        };
        if !is_marked {
            self.prompt.begin_part();
            self.prompt.mark(marks::TOKENS);
        }
        self.prompt.token(id);
    }
}

impl Visitor for RequestVisitor {
    fn open(&mut self, kind: Container) {
        let mode = self.mode().of_container(kind);
        match (mode, kind) {
            (Mode::Json, Container::Object) => self.prompt.begin_json(marks::OBJECT),
            (Mode::Json, Container::Array) => self.prompt.begin_json(marks::ARRAY),
            (Mode::Message, Container::Object) => self.prompt.begin_message(),
            _ => {}
        }
        self.frames.push(Frame {
            mode,
            kind,
            has_tokens: false,
        });
    }

    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        match (frame.mode, frame.kind) {
            (Mode::Json, Container::Object) => self.prompt.mark(marks::OBJECT_END),
            (Mode::Json, Container::Array) => self.prompt.mark(marks::ARRAY_END),
            (Mode::Message, Container::Object) => self.prompt.end_message(),
            _ => {}
        }
        self.prompt.end_value(self.frames.len());
    }

    fn key(&mut self, key: &[u8]) {
        let depth = self.frames.len();
        self.members.key(depth, key);
        let Some(frame) = self.frames.last() else {
            return;
        };
        let (mode, is_named) = match frame.mode {
            Mode::Request => (
                self.begin_member(shape::request_member(self.api, key)),
                false,
            ),
            Mode::Object(members) => (self.begin_member(shape::find(members, key)), false),
            Mode::Json if key == CACHE_CONTROL => (Mode::Skip, false),
            Mode::Json => {
                self.prompt.mark(marks::KEY);
                self.prompt.text(key);
                (Mode::Json, false)
            }
            Mode::Message => message_member(key),
            Mode::Parts | Mode::Texts => part_member(key),
            Mode::Media if is_media_encoding(key) => (Mode::Skip, false),
            mode @ (Mode::Media | Mode::CacheKey(_)) => (mode, false),
            Mode::Skip | Mode::Messages | Mode::Attribute(_) | Mode::OutputMax | Mode::Stream => {
                (Mode::Skip, false)
            }
        };
        if is_named {
            self.prompt.name_next(key, depth);
        }
        self.member = mode;
    }

    fn string_start(&mut self) {
        self.members.string_start(self.frames.len());
        self.sink = match self.mode() {
            Mode::Json => {
                self.prompt.begin_json(marks::STRING);
                Sink::Text
            }
            Mode::Parts | Mode::Texts => {
                self.prompt.begin_part();
                Sink::Text
            }
            mode @ (Mode::Messages | Mode::Message) => {
                self.prompt.begin_message();
                self.prompt.begin_part();
                Sink::Message {
                    has_default_role: matches!(mode, Mode::Messages),
                }
            }
            Mode::Media => Sink::Medium,
            Mode::CacheKey(key) => Sink::CacheKey(key),
            Mode::Attribute(attribute) => Sink::Attribute(attribute),
            Mode::Skip | Mode::Request | Mode::Object(_) | Mode::OutputMax | Mode::Stream => {
                Sink::Discard
            }
        };
    }

    #[inline]
    fn string_part(&mut self, part: &[u8]) {
        match self.sink {
            Sink::Text | Sink::Message { .. } => self.prompt.text(part),
            Sink::Medium | Sink::CacheKey(_) | Sink::Attribute(_) => self.digest.push(part),
            Sink::Discard => {}
        }
        self.members.string_part(part);
    }

    fn string_end(&mut self) {
        match mem::replace(&mut self.sink, Sink::Discard) {
            Sink::Discard | Sink::Text => {}
            Sink::Message {
                has_default_role: true,
            } => self.prompt.end_text_message(),
            Sink::Message {
                has_default_role: false,
            } => self.prompt.end_message(),
            Sink::Medium => self.prompt.medium(self.digest.take()),
            Sink::CacheKey(key) => self.prompt.add_cache_key(key, self.digest.take()),
            Sink::Attribute(attribute) => self.prompt.set_attribute(attribute, self.digest.take()),
        }
        self.members.string_end();
        self.prompt.end_value(self.frames.len());
    }

    fn literal(&mut self, literal: &[u8]) {
        let depth = self.frames.len();
        self.members.literal(depth, literal);
        match self.mode() {
            // A null member of the request or of a message counts as absent.
            Mode::Json if literal == b"null" && (depth == 1 || self.prompt.has_name()) => {}
            Mode::Json => {
                self.prompt.begin_json(marks::LITERAL);
                self.prompt.text(literal);
            }
            Mode::Texts => self.token(literal),
            Mode::CacheKey(key) if literal != b"null" => {
                self.prompt.add_cache_key(key, Digest::of(literal));
            }
            Mode::OutputMax => {
                self.output_tokens_max = self.output_tokens_max.max(parse_number(literal));
            }
            Mode::Stream => {
                self.stream.get_or_insert(literal == b"true");
            }
            _ => {}
        }
        self.prompt.end_value(depth);
    }
}

/// A whole number; the largest `u32` where the number does not fit.
fn parse_number(literal: &[u8]) -> Option<u32> {
    literal.first()?;
    literal.iter().try_fold(0u32, |value, digit| {
        digit.is_ascii_digit().then(|| {
            value
                .saturating_mul(10)
                .saturating_add(u32::from(digit - b'0'))
        })
    })
}
