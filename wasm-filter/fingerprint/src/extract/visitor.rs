//! Decides from the position of each JSON value how it enters the prompt.

use alloc::vec::Vec;
use core::mem;

use super::marks;
use super::members::MemberFinder;
use super::names::{NameStack, ObjectNames};
use super::prompt::PromptWriter;
use crate::Api;
use crate::json::{Container, Visitor};
use crate::leaves::{Digest, NO_BYTES};
use crate::shape::message::{is_media_encoding, message_member, part_member};
use crate::shape::{self, Attribute, CacheKey, Member, Members, Mode};

/// The nesting of a usual request, so that most requests allocate once.
const DEPTH_EXPECTED: usize = 16;

/// The beginning of a block of the system text that an agent puts first and changes with each request. Engines leave it out; those
/// that render it find nothing in their caches anyway.
const BILLING_HEADER: &[u8] = b"x-anthropic-billing-header";

/// The member that moves between the values of a conversation and renders nowhere.
const CACHE_CONTROL: &[u8] = b"cache_control";

/// An open object or array.
#[derive(Clone, Copy, Debug)]
struct Frame {
    mode: Mode,
    kind: Container,
    names: ObjectNames,
    /// Whether the array contains a token id.
    has_tokens: bool,
}

/// The destination of the string that is arriving.
#[derive(Clone, Copy, Debug)]
enum Sink {
    Discard,
    Text,
    /// Text that has not begun, as JSON or not. Engines render an empty one as absent.
    Unbegun {
        is_json: bool,
    },
    /// The text of a block of the system text, of which so many bytes begin [`BILLING_HEADER`].
    SystemBlock {
        matched: usize,
    },
    /// The text of a message that consists of text alone.
    Message {
        has_default_role: bool,
    },
    Medium,
    CacheKey(CacheKey),
    RenderOption,
    Excess,
    Attribute(Attribute),
}

/// The option of rendering whose value is arriving.
#[derive(Clone, Copy, Debug)]
struct OpenOption {
    /// The digest of its name.
    name: u64,
    /// The number of objects around it.
    depth: usize,
}

/// Receives the contents of a request from the scanner.
#[derive(Debug)]
pub(super) struct RequestVisitor {
    /// The API whose prompt is read, if any.
    api: Option<Api>,
    pub(super) prompt: PromptWriter,
    pub(super) members: MemberFinder,
    pub(super) stream: Option<bool>,
    pub(super) output_tokens_max: Option<u32>,
    frames: Vec<Frame>,
    names: NameStack,
    option: Option<OpenOption>,
    /// The mode of the value of the member whose name came last.
    member: Mode,
    sink: Sink,
    digest: Digest,
}

impl RequestVisitor {
    pub(super) fn new(api: Option<Api>, members: MemberFinder) -> Self {
        Self {
            api,
            prompt: PromptWriter::new(),
            members,
            stream: None,
            output_tokens_max: None,
            frames: Vec::with_capacity(DEPTH_EXPECTED),
            names: NameStack::new(),
            option: None,
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

    /// Begins a member of the request, or of an object in it with these members.
    #[inline(never)]
    fn begin_member(&mut self, members: Option<&Members>, name: &[u8]) -> Mode {
        let member = match members {
            None => self.api.and_then(|api| shape::request_member(api, name)),
            Some(members) => shape::find(members, name),
        };
        let Some((place, Member { section, mode })) = member else {
            return Mode::Skip;
        };
        // The finder of members compares the values of a model that repeats.
        let is_model = matches!(mode, Mode::CacheKey(CacheKey::Model));
        if let Some(frame) = self.frames.last_mut().filter(|_| !is_model) {
            self.names.add_place(&mut frame.names, place);
        }
        if matches!(mode, Mode::RenderOption) {
            self.digest.take();
            self.option = Some(OpenOption {
                name: Digest::of(name),
                depth: self.frames.len(),
            });
        }
        match section {
            Some(section) if !self.prompt.begin_section(section) => Mode::Excess,
            _ => mode,
        }
    }

    /// Whether an object repeats a member that matters. Objects that have not ended count as far as they were read.
    pub(super) fn finish_names(&mut self) -> bool {
        for frame in self.frames.iter().rev() {
            self.names.close(&frame.names);
        }
        self.names.is_repeated() || self.members.is_repeated()
    }

    /// Adds bytes to the option of rendering whose value is arriving. Options are rare, so no caller needs a copy of this.
    #[inline(never)]
    fn push_option(&mut self, bytes: &[u8]) {
        self.digest.push(bytes);
    }

    /// Adds the option of rendering whose value ends here, unless it is `null` or empty.
    #[inline(never)]
    fn end_option(&mut self, is_null: bool) {
        let depth = self.frames.len();
        if let Some(option) = self.option.take_if(|option| option.depth == depth) {
            let value = self.digest.take();
            let is_empty = [
                &[][..],
                &[marks::OBJECT, marks::OBJECT_END],
                &[marks::ARRAY, marks::OBJECT_END],
            ]
            .iter()
            .any(|empty| Digest::of(empty) == value);
            if !is_null && !is_empty {
                self.prompt.add_option(option.name, value);
            }
        }
    }

    /// Whether the value that arrives is an option of rendering itself, not a part of it.
    fn is_whole_option(&self) -> bool {
        let depth = self.frames.len();
        self.option.is_some_and(|option| option.depth == depth)
    }

    /// Whether the text that begins is a block of the system text of Anthropic's API.
    fn is_system_block(&self) -> bool {
        self.api == Some(Api::Messages)
            && matches!(
                &*self.frames,
                [_, system, _] if matches!(system.mode, Mode::Parts) && system.kind == Container::Array
            )
    }

    /// Begins a text with its first bytes, or tells whether a block of the system text is to be left out.
    #[cold]
    #[inline(never)]
    fn begin_text(&mut self, part: &[u8]) {
        let mut matched_bytes = 0;
        match self.sink {
            Sink::Unbegun { is_json: true } => self.prompt.begin_json(marks::STRING),
            Sink::SystemBlock { matched } => {
                let rest = BILLING_HEADER.get(matched..).unwrap_or_default();
                if part.starts_with(rest) {
                    self.sink = Sink::Discard;
                    return;
                }
                if rest.starts_with(part) {
                    let matched = matched + part.len();
                    self.sink = Sink::SystemBlock { matched };
                    return;
                }
                matched_bytes = matched;
                self.prompt.begin_part();
            }
            _ => self.prompt.begin_part(),
        }
        self.prompt
            .text(BILLING_HEADER.get(..matched_bytes).unwrap_or_default());
        self.prompt.text(part);
        self.sink = Sink::Text;
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
    #[inline(never)]
    fn open(&mut self, kind: Container) {
        let mode = self.mode().of_container(kind);
        let depth = self.frames.len();
        match (mode, kind) {
            (Mode::Json, Container::Object) => self.prompt.open_json(marks::OBJECT, depth),
            (Mode::Json, Container::Array) => self.prompt.open_json(marks::ARRAY, depth),
            (Mode::Message, Container::Object) => self.prompt.begin_message(),
            (Mode::RenderOption, Container::Object) => self.push_option(&[marks::OBJECT]),
            (Mode::RenderOption, Container::Array) => self.push_option(&[marks::ARRAY]),
            _ => {}
        }
        self.frames.push(Frame {
            mode,
            kind,
            names: self.names.open(),
            has_tokens: false,
        });
    }

    #[inline(never)]
    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        match (frame.mode, frame.kind) {
            (Mode::Json, Container::Object) => self.prompt.close_json(marks::OBJECT_END),
            (Mode::Json, Container::Array) => self.prompt.close_json(marks::ARRAY_END),
            (Mode::Message, Container::Object) => self.prompt.end_message(),
            (Mode::RenderOption, _) => {
                self.push_option(&[marks::OBJECT_END]);
                self.end_option(false);
            }
            _ => {}
        }
        self.names.close(&frame.names);
        self.prompt.end_value(self.frames.len());
    }

    #[inline(never)]
    fn key(&mut self, key: &[u8]) {
        let depth = self.frames.len();
        self.members.key(depth, key);
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        if frame.mode.has_any_names() {
            self.names.add(&mut frame.names, key);
        }
        let (mode, is_named) = match frame.mode {
            Mode::Request => (self.begin_member(None, key), false),
            Mode::Object(members) => (self.begin_member(Some(members), key), false),
            Mode::Json if key == CACHE_CONTROL => (Mode::Skip, false),
            Mode::Json => {
                self.prompt.begin_json(marks::KEY);
                self.prompt.text(key);
                (Mode::Json, false)
            }
            Mode::Message => message_member(key),
            Mode::Parts | Mode::Texts => part_member(key),
            Mode::Media if is_media_encoding(key) => (Mode::Skip, false),
            mode @ (Mode::Media | Mode::CacheKey(_)) => (mode, false),
            Mode::Excess => {
                self.names.set_repeated();
                (Mode::Excess, false)
            }
            mode @ Mode::RenderOption => {
                self.push_option(&[marks::KEY]);
                self.push_option(key);
                (mode, false)
            }
            Mode::Skip | Mode::Messages | Mode::Attribute(_) | Mode::OutputMax | Mode::Stream => {
                (Mode::Skip, false)
            }
        };
        if is_named {
            self.prompt.name_next(key, depth);
        }
        self.member = mode;
    }

    #[inline(never)]
    fn string_start(&mut self) {
        self.members.string_start(self.frames.len());
        self.sink = match self.mode() {
            Mode::Json if self.prompt.is_whole_member(self.frames.len()) => {
                Sink::Unbegun { is_json: true }
            }
            Mode::Json => {
                self.prompt.begin_json(marks::STRING);
                Sink::Text
            }
            Mode::Parts if self.is_system_block() => Sink::SystemBlock { matched: 0 },
            Mode::Parts | Mode::Texts => Sink::Unbegun { is_json: false },
            mode @ (Mode::Messages | Mode::Message) => {
                self.prompt.begin_message();
                self.prompt.begin_part();
                Sink::Message {
                    has_default_role: matches!(mode, Mode::Messages),
                }
            }
            Mode::Media => Sink::Medium,
            Mode::CacheKey(key) => Sink::CacheKey(key),
            Mode::RenderOption => {
                if !self.is_whole_option() {
                    self.push_option(&[marks::STRING]);
                }
                Sink::RenderOption
            }
            Mode::Excess => Sink::Excess,
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
            Sink::Medium
            | Sink::CacheKey(_)
            | Sink::RenderOption
            | Sink::Excess
            | Sink::Attribute(_) => self.digest.push(part),
            Sink::Unbegun { .. } | Sink::SystemBlock { .. } => self.begin_text(part),
            Sink::Discard => {}
        }
        self.members.string_part(part);
    }

    fn string_end(&mut self) {
        match mem::replace(&mut self.sink, Sink::Discard) {
            Sink::Discard | Sink::Text | Sink::Unbegun { .. } => {}
            Sink::SystemBlock { matched: 0 } => {}
            Sink::SystemBlock { matched } => {
                self.prompt.begin_part();
                let text = BILLING_HEADER.get(..matched);
                self.prompt.text(text.unwrap_or_default());
            }
            Sink::Excess if self.digest.take() == NO_BYTES => {}
            Sink::Excess => self.names.set_repeated(),
            Sink::Message {
                has_default_role: true,
            } => self.prompt.end_text_message(),
            Sink::Message {
                has_default_role: false,
            } => self.prompt.end_message(),
            Sink::Medium => self.prompt.medium(self.digest.take()),
            Sink::CacheKey(key) => self.prompt.add_cache_key(key, self.digest.take()),
            Sink::RenderOption => self.end_option(false),
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
            Mode::Json if literal == b"null" && self.prompt.is_whole_member(depth) => {}
            Mode::Json => {
                self.prompt.begin_json(marks::LITERAL);
                self.prompt.text(literal);
            }
            Mode::Texts => self.token(literal),
            Mode::CacheKey(key) if literal != b"null" => {
                self.prompt.add_cache_key(key, Digest::of(literal));
            }
            Mode::RenderOption => {
                let is_null = literal == b"null" && self.is_whole_option();
                self.push_option(&[marks::LITERAL]);
                self.push_option(literal);
                self.end_option(is_null);
            }
            Mode::Excess if literal != b"null" => self.names.set_repeated(),
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
