//! Writing the prompt: text, marks, and what is counted for the token estimate.
//!
//! A message is written as its parts in order of arrival, then a mark, then role, name and call. Those come last whatever
//! their place in the body, because members of an object have no order, and content cannot wait for a role that may follow
//! it without being kept. An engine renders the role first; the price is that two prompts which differ in a role alone part
//! at the end of that message instead of its beginning.

use super::marks;
use crate::leaves::{Leaves, fold};
use crate::sections::{Chain, Section, Sections};
use crate::shape::item::{TRAILERS, Trailer};
use crate::shape::{SELECTORS, Selector};

/// Bytes of text to a token, about, for English text and code under the vocabularies of today (100,000 tokens and more).
const TEXT_BYTES_PER_TOKEN: u64 = 4;
/// Tokens that an image, or another medium, counts as: LLaVA-1.5's 24 by 24 patches. Models differ by a factor of ten, and
/// the size of the picture is not known here; what matters is that it is not counted by its base64 text.
const MEDIUM_TOKENS: u64 = 576;
/// Bytes that a token id counts as in the prompt.
const TOKEN_BYTES: u64 = 4;
/// The role of a message that is given as text alone.
const DEFAULT_ROLE: &[u8] = b"user";

/// The name of a member that counts by name.
#[derive(Clone, Copy, Debug)]
struct Name {
    digest: u64,
    /// How many objects and arrays are around the member.
    depth: usize,
}

/// The prompt so far.
#[derive(Debug)]
pub(super) struct Prompt {
    sections: Sections,
    selectors: [Option<u64>; SELECTORS],
    trailers: [Option<u64>; TRAILERS],
    /// Whether something was written since the section or the message began.
    wrote: bool,
    /// The name under which the next part counts.
    field: Option<Name>,
    token_ids: u64,
    media: u64,
}

impl Prompt {
    pub(super) fn new() -> Self {
        Self {
            sections: Sections::new(),
            selectors: [None; SELECTORS],
            trailers: [None; TRAILERS],
            wrote: false,
            field: None,
            token_ids: 0,
            media: 0,
        }
    }

    /// A section begins; `false` when there was one of this kind that is not empty.
    pub(super) fn begin_section(&mut self, section: Section) -> bool {
        self.wrote = false;
        self.sections.begin(section)
    }

    /// A message begins.
    pub(super) fn begin_message(&mut self) {
        self.wrote = false;
        self.trailers = [None; TRAILERS];
    }

    /// It ends.
    pub(super) fn end_message(&mut self) {
        self.mark(marks::MESSAGE_END);
        for (trailer, number) in self.trailers.iter().zip(0u8..) {
            if let Some(digest) = trailer {
                self.sections.push(&[number]);
                self.sections.push(&digest.to_le_bytes());
            }
        }
    }

    /// A message that was text alone ends.
    pub(super) fn end_text_message(&mut self) {
        let mut role = Leaves::default();
        role.push(DEFAULT_ROLE);
        self.set_trailer(Trailer::Role, role.digest());
        self.end_message();
    }

    /// Whose the message is; the first of a kind counts.
    pub(super) fn set_trailer(&mut self, trailer: Trailer, digest: u64) {
        if let Some(place) = self.trailers.get_mut(trailer as usize) {
            place.get_or_insert(digest);
        }
    }

    /// The next part counts under this name, if it comes before the member ends.
    pub(super) fn name_next(&mut self, name: &[u8], depth: usize) {
        let mut digest = Leaves::default();
        digest.push(name);
        self.field = Some(Name {
            digest: digest.digest(),
            depth,
        });
    }

    /// A value inside this many objects and arrays ends.
    pub(super) fn end_value(&mut self, depth: usize) {
        if self.field.is_some_and(|name| name.depth == depth) {
            self.field = None;
        }
        if depth == 1 {
            self.sections.end();
        }
    }

    /// Whether a name waits for its value.
    pub(super) fn is_named(&self) -> bool {
        self.field.is_some()
    }

    /// A part begins: text, a medium, or a member that counts by name.
    pub(super) fn begin_part(&mut self) {
        if self.wrote {
            self.mark(marks::PART);
        }
        self.wrote = true;
        self.write_name();
    }

    /// A JSON value begins.
    pub(super) fn begin_json(&mut self, mark: u8) {
        if self.field.is_some() {
            self.begin_part();
        }
        self.mark(mark);
    }

    fn write_name(&mut self) {
        if let Some(name) = self.field.take() {
            self.mark(marks::FIELD);
            self.sections.push(&name.digest.to_le_bytes());
        }
    }

    /// Structure.
    pub(super) fn mark(&mut self, mark: u8) {
        self.sections.push(&[mark]);
    }

    /// Text.
    #[inline]
    pub(super) fn text(&mut self, text: &[u8]) {
        self.sections.push(text);
    }

    /// An image, audio, video or file.
    pub(super) fn medium(&mut self, digest: u64) {
        self.begin_part();
        self.mark(marks::MEDIA);
        self.sections.push(&digest.to_le_bytes());
        self.media += 1;
    }

    /// A token id.
    pub(super) fn token(&mut self, id: u32) {
        self.sections.push(&id.to_le_bytes());
        self.token_ids += 1;
    }

    /// Whether this selector has a value.
    pub(super) fn is_selected(&self, selector: Selector) -> bool {
        self.selectors
            .get(selector as usize)
            .is_some_and(Option::is_some)
    }

    /// A value of this selector; several of one list all count.
    pub(super) fn select(&mut self, selector: Selector, digest: u64) {
        if let Some(place) = self.selectors.get_mut(selector as usize) {
            *place = Some(fold(place.unwrap_or_default(), digest));
        }
    }

    /// Estimated tokens so far.
    pub(super) fn tokens(&self) -> u32 {
        let ids_bytes = self.token_ids * TOKEN_BYTES;
        let text_bytes = self.sections.total_bytes().saturating_sub(ids_bytes);
        let tokens =
            text_bytes.div_ceil(TEXT_BYTES_PER_TOKEN) + self.token_ids + self.media * MEDIUM_TOKENS;
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The chain of everything.
    pub(super) fn fold(self) -> Chain {
        let seed = self
            .selectors
            .iter()
            .fold(0, |seed, digest| fold(seed, digest.unwrap_or_default()));
        self.sections.fold(seed)
    }
}
