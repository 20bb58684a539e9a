//! Renders the prompt for hashing, text and marks, and counts what the token estimate needs.
//!
//! The writer emits a message as its parts in order of arrival, then a mark, then role, name and call. Those come last
//! wherever the body has them: members of an object have no order, and content cannot wait for a later role without a
//! buffer. An engine renders the role first. So two prompts that differ in one role diverge at the end of that message
//! instead of its beginning.

use super::marks;
use crate::Fingerprint;
use crate::leaves::{Digest, NO_BYTES, fold};
use crate::sections::{Section, Sections};
use crate::shape::{ATTRIBUTES, Attribute, CACHE_KEYS, CacheKey};
use crate::tokens;

/// Bytes of a token id in the prompt.
const TOKEN_BYTES: u64 = 4;
/// The role of a message that consists of text alone.
const DEFAULT_ROLE: &[u8] = b"user";

#[derive(Debug)]
pub(super) struct PromptWriter {
    sections: Sections,
    /// The seed of the tenant; 0 without one.
    tenant: u64,
    cache_keys: [Option<u64>; CACHE_KEYS],
    attributes: [Option<u64>; ATTRIBUTES],
    /// The sum over the options of rendering, in any order; 0 without one.
    options: u64,
    /// Whether the section or the message has a part already.
    has_part: bool,
    /// The digest of a member's name that the next part writes first, and the member's depth.
    name: Option<(u64, usize)>,
    /// The mark of the object or array that is the whole value of a member, and has no content yet.
    container: Option<u8>,
    token_ids: u64,
    media: u64,
}

impl PromptWriter {
    pub(super) fn new() -> Self {
        Self {
            sections: Sections::new(),
            tenant: 0,
            cache_keys: [None; CACHE_KEYS],
            attributes: [None; ATTRIBUTES],
            options: 0,
            has_part: false,
            name: None,
            container: None,
            token_ids: 0,
            media: 0,
        }
    }

    /// Begins a section. Returns `false` when the prompt has a section of this kind that is not empty.
    pub(super) fn begin_section(&mut self, section: Section) -> bool {
        self.has_part = false;
        self.sections.begin(section)
    }

    pub(super) fn begin_message(&mut self) {
        self.has_part = false;
        self.attributes = [None; ATTRIBUTES];
    }

    pub(super) fn end_message(&mut self) {
        self.mark(marks::MESSAGE_END);
        for (attribute, number) in self.attributes.iter().zip(0u8..) {
            if let Some(digest) = attribute {
                self.sections.push(&[number]);
                self.sections.push(&digest.to_le_bytes());
            }
        }
    }

    pub(super) fn end_text_message(&mut self) {
        self.set_attribute(Attribute::Role, Digest::of(DEFAULT_ROLE));
        self.end_message();
    }

    /// Sets an attribute of the message, unless it has a value already or this one is empty.
    pub(super) fn set_attribute(&mut self, attribute: Attribute, digest: u64) {
        if digest != NO_BYTES
            && let Some(value) = self.attributes.get_mut(attribute as usize)
        {
            value.get_or_insert(digest);
        }
    }

    /// Makes the next part write this name first, if the part begins before the member at this depth ends.
    pub(super) fn name_next(&mut self, name: &[u8], depth: usize) {
        self.name = Some((Digest::of(name), depth));
    }

    /// Ends a value inside this number of objects and arrays.
    pub(super) fn end_value(&mut self, depth: usize) {
        if self.name.is_some_and(|(_, at)| at == depth) {
            self.name = None;
        }
        if depth == 1 {
            self.sections.end();
        }
    }

    /// Whether a JSON value inside this number of objects and arrays is the whole value of a member of the request or of a
    /// message. Engines render such a value as absent where it is null or empty.
    pub(super) fn is_whole_member(&self, depth: usize) -> bool {
        self.container.is_none() && (depth == 1 || self.name.is_some())
    }

    /// Begins a part: text, a medium, or a member that is hashed with its name.
    pub(super) fn begin_part(&mut self) {
        if self.has_part {
            self.mark(marks::PART);
        }
        self.has_part = true;
        if let Some((digest, _)) = self.name.take() {
            self.mark(marks::NAME);
            self.sections.push(&digest.to_le_bytes());
        }
    }

    /// Begins a JSON value with this mark.
    pub(super) fn begin_json(&mut self, mark: u8) {
        let container = self.container.take();
        if self.name.is_some() {
            self.begin_part();
        }
        if let Some(container) = container {
            self.mark(container);
        }
        self.mark(mark);
    }

    /// Begins an object or array inside this number of others.
    pub(super) fn open_json(&mut self, mark: u8, depth: usize) {
        if self.is_whole_member(depth) {
            self.container = Some(mark);
        } else {
            self.begin_json(mark);
        }
    }

    /// Ends an object or array.
    pub(super) fn close_json(&mut self, mark: u8) {
        if self.container.take().is_none() {
            self.mark(mark);
        }
    }

    pub(super) fn mark(&mut self, mark: u8) {
        self.sections.push(&[mark]);
    }

    #[inline]
    pub(super) fn text(&mut self, text: &[u8]) {
        self.sections.push(text);
    }

    /// Writes an image, audio, video or file, unless it is empty.
    pub(super) fn medium(&mut self, digest: u64) {
        if digest == NO_BYTES {
            return;
        }
        self.begin_part();
        self.mark(marks::MEDIA);
        self.sections.push(&digest.to_le_bytes());
        self.media += 1;
    }

    pub(super) fn token(&mut self, id: u32) {
        self.sections.push(&id.to_le_bytes());
        self.token_ids += 1;
    }

    /// Adds a value of this cache key, unless it is empty; all values of a list count. Of two models the first counts: they are equal, or the
    /// body has an error.
    pub(super) fn add_cache_key(&mut self, key: CacheKey, digest: u64) {
        if let Some(value) = self.cache_keys.get_mut(key as usize)
            && (key != CacheKey::Model || value.is_none())
            && digest != NO_BYTES
        {
            *value = Some(fold(value.unwrap_or_default(), digest));
        }
    }

    /// Sets the seed of the tenant.
    pub(super) fn set_tenant(&mut self, seed: u64) {
        self.tenant = seed;
    }

    /// Adds an option of rendering.
    pub(super) fn add_option(&mut self, name: u64, value: u64) {
        self.options = self.options.wrapping_add(fold(name, value));
    }

    /// The estimated number of tokens so far.
    pub(super) fn tokens(&self) -> u32 {
        let ids_bytes = self.token_ids * TOKEN_BYTES;
        let text_bytes = self.sections.total_bytes().saturating_sub(ids_bytes);
        let media_tokens = self.media * u64::from(tokens::MEDIUM_TOKENS);
        let tokens = u64::from(tokens::of_text(text_bytes)) + self.token_ids + media_tokens;
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The fingerprint of the prompt. The cache key is the seed of its chain, together with the tenant and the options of
    /// rendering.
    pub(super) fn fingerprint(self) -> Fingerprint {
        let keys = self.cache_keys.iter();
        let seed = keys.fold(self.tenant, |seed, key| fold(seed, key.unwrap_or_default()));
        let seed = match self.options {
            0 => seed,
            options => fold(seed, options),
        };
        self.sections.fold(seed)
    }
}
