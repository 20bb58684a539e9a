//! What each value of a request is, from where it stands.

use alloc::vec::Vec;

use super::marks;
use super::mode::{Frame, Mode};
use super::prompt::Prompt;
use super::watch::Watch;
use crate::Api;
use crate::json::{Kind, Visit};
use crate::leaves::Leaves;
use crate::shape::item::{self, Item, Trailer};
use crate::shape::{self, Field, Selector};

/// Room for the nesting of a usual request, so that most requests allocate once.
const DEPTH_EXPECTED: usize = 16;

/// Where the contents of the string go that is arriving.
#[derive(Clone, Copy, Debug)]
enum Sink {
    Nowhere,
    Text,
    /// The text of a message that is text alone; whether it has the default role.
    Message {
        default_role: bool,
    },
    Medium,
    Selector(Selector),
    Trailer(Trailer),
}

/// Follows the scanner through a request.
#[derive(Debug)]
pub(super) struct Walk {
    api: Api,
    pub(super) prompt: Prompt,
    pub(super) watch: Watch,
    pub(super) stream: Option<bool>,
    pub(super) output_tokens_max: Option<u32>,
    frames: Vec<Frame>,
    /// How to read the value of the member whose name came last.
    member: Mode,
    sink: Sink,
    digest: Leaves,
}

impl Walk {
    pub(super) fn new(api: Api, watch: Watch) -> Self {
        Self {
            api,
            prompt: Prompt::new(),
            watch,
            stream: None,
            output_tokens_max: None,
            frames: Vec::with_capacity(DEPTH_EXPECTED),
            member: Mode::Request,
            sink: Sink::Nowhere,
            digest: Leaves::default(),
        }
    }

    /// How to read the value that begins.
    fn mode(&self) -> Mode {
        match self.frames.last() {
            Some(frame) if frame.kind == Kind::Array => frame.mode.of_element(),
            _ => self.member,
        }
    }

    /// How to read a member of the request, or of an object that it holds.
    fn field(&mut self, field: Option<Field>) -> Mode {
        match field {
            None => Mode::Skip,
            Some(Field::Prompt(section, reading)) => {
                // The first of several that is not empty wins. Parsers take the last; that is not known before the end.
                if !self.prompt.begin_section(section) {
                    return Mode::Skip;
                }
                reading.into()
            }
            Some(Field::Selects(selector)) if self.prompt.is_selected(selector) => Mode::Skip,
            Some(Field::Selects(selector)) => Mode::Selects(selector),
            Some(Field::OutputMax) => Mode::OutputMax,
            Some(Field::Stream) => Mode::Stream,
            Some(Field::Holds(members)) => Mode::Holds(members),
        }
    }

    /// How to read a member of a message or a part.
    fn item(&mut self, item: Item, name: &[u8]) -> Mode {
        match item {
            Item::Parts => Mode::Parts,
            Item::NamedParts => {
                self.prompt.name_next(name, self.frames.len());
                Mode::Parts
            }
            Item::Media => Mode::Media,
            Item::Trailer(trailer) => Mode::Trailer(trailer),
            Item::Nothing => Mode::Skip,
            Item::Json => {
                self.prompt.name_next(name, self.frames.len());
                Mode::Json
            }
        }
    }

    fn token(&mut self, literal: &[u8]) {
        let Some(id) = number(literal) else {
            return;
        };
        // One mark before a list of ids, and one before an id that stands alone.
        let begun = match self.frames.last_mut() {
            Some(frame) if frame.kind == Kind::Array => core::mem::replace(&mut frame.tokens, true),
            _ => false,
        };
        if !begun {
            self.prompt.begin_part();
            self.prompt.mark(marks::TOKENS);
        }
        self.prompt.token(id);
    }
}

impl Visit for Walk {
    fn open(&mut self, kind: Kind) {
        let mode = self.mode().of_container(kind);
        match (mode, kind) {
            (Mode::Json, Kind::Object) => self.prompt.begin_json(marks::OBJECT),
            (Mode::Json, Kind::Array) => self.prompt.begin_json(marks::ARRAY),
            (Mode::Message, Kind::Object) => self.prompt.begin_message(),
            _ => {}
        }
        self.frames.push(Frame {
            mode,
            kind,
            tokens: false,
        });
    }

    fn close(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        match (frame.mode, frame.kind) {
            (Mode::Json, Kind::Object) => self.prompt.mark(marks::OBJECT_END),
            (Mode::Json, Kind::Array) => self.prompt.mark(marks::ARRAY_END),
            (Mode::Message, Kind::Object) => self.prompt.end_message(),
            _ => {}
        }
        self.prompt.end_value(self.frames.len());
    }

    fn key(&mut self, key: &[u8]) {
        self.watch.key(self.frames.len(), key);
        let Some(frame) = self.frames.last() else {
            return;
        };
        self.member = match frame.mode {
            Mode::Request => self.field(shape::field(self.api, key)),
            Mode::Holds(members) => self.field(shape::find(members, key)),
            Mode::Json if item::renders_nowhere(key) => Mode::Skip,
            Mode::Json => {
                self.prompt.mark(marks::KEY);
                self.prompt.text(key);
                Mode::Json
            }
            Mode::Message => self.item(item::of_message(key), key),
            Mode::Parts | Mode::Texts => self.item(item::of_part(key), key),
            Mode::Media if item::describes_media(key) => Mode::Skip,
            Mode::Media => Mode::Media,
            Mode::Selects(selector) => Mode::Selects(selector),
            Mode::Skip | Mode::Messages | Mode::Trailer(_) | Mode::OutputMax | Mode::Stream => {
                Mode::Skip
            }
        };
    }

    fn string_start(&mut self) {
        self.watch.start(self.frames.len());
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
                    default_role: matches!(mode, Mode::Messages),
                }
            }
            Mode::Media => Sink::Medium,
            Mode::Selects(selector) => Sink::Selector(selector),
            Mode::Trailer(trailer) => Sink::Trailer(trailer),
            Mode::Skip | Mode::Request | Mode::Holds(_) | Mode::OutputMax | Mode::Stream => {
                Sink::Nowhere
            }
        };
    }

    #[inline]
    fn string_part(&mut self, part: &[u8]) {
        match self.sink {
            Sink::Text | Sink::Message { .. } => self.prompt.text(part),
            Sink::Medium | Sink::Selector(_) | Sink::Trailer(_) => self.digest.push(part),
            Sink::Nowhere => {}
        }
        self.watch.part(part);
    }

    fn string_end(&mut self) {
        match core::mem::replace(&mut self.sink, Sink::Nowhere) {
            Sink::Nowhere | Sink::Text => {}
            Sink::Message { default_role: true } => self.prompt.end_text_message(),
            Sink::Message {
                default_role: false,
            } => self.prompt.end_message(),
            Sink::Medium => self.prompt.medium(self.digest.digest()),
            Sink::Selector(selector) => self.prompt.select(selector, self.digest.digest()),
            Sink::Trailer(trailer) => self.prompt.set_trailer(trailer, self.digest.digest()),
        }
        self.watch.end();
        self.prompt.end_value(self.frames.len());
    }

    fn literal(&mut self, literal: &[u8]) {
        self.watch.literal(self.frames.len(), literal);
        match self.mode() {
            // A member of the request or of a message that is null is a member that is not there.
            Mode::Json
                if literal == b"null" && (self.frames.len() == 1 || self.prompt.is_named()) => {}
            Mode::Json => {
                self.prompt.begin_json(marks::LITERAL);
                self.prompt.text(literal);
            }
            Mode::Texts => self.token(literal),
            Mode::Selects(selector) if literal != b"null" => {
                self.digest.push(literal);
                self.prompt.select(selector, self.digest.digest());
            }
            Mode::OutputMax => self.output_tokens_max = self.output_tokens_max.max(number(literal)),
            Mode::Stream => {
                self.stream.get_or_insert(literal == b"true");
            }
            Mode::Skip
            | Mode::Request
            | Mode::Holds(_)
            | Mode::Parts
            | Mode::Messages
            | Mode::Message
            | Mode::Media
            | Mode::Selects(_)
            | Mode::Trailer(_) => {}
        }
        self.prompt.end_value(self.frames.len());
    }
}

/// A whole number; the largest where it has no place in 32 bits.
fn number(literal: &[u8]) -> Option<u32> {
    literal.first()?;
    literal.iter().try_fold(0u32, |value, digit| {
        digit.is_ascii_digit().then(|| {
            value
                .saturating_mul(10)
                .saturating_add(u32::from(digit - b'0'))
        })
    })
}
