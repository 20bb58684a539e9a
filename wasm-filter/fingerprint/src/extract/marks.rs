//! Bytes that stand for structure among the text that is hashed.
//!
//! Unescaped text may hold any character, so nothing that a client can write may look like structure: each mark is a byte
//! that UTF-8 does not have. (A client that sends broken UTF-8 can make two of its own prompts look alike. That costs it a
//! cold cache; engines refuse such a body anyway.)

/// Between two parts of a message, or two texts of a list.
pub(super) const PART: u8 = 0xFC;
/// Before the 8-byte digest of the name of a member that counts by name.
pub(super) const FIELD: u8 = 0xFD;
/// Before the 8-byte digest of an image, audio, video or file.
pub(super) const MEDIA: u8 = 0xFE;
/// Behind the parts of a message. The trailers that it has follow, each as its number and an 8-byte digest.
pub(super) const MESSAGE_END: u8 = 0xFF;
/// Before token ids, 4 bytes each.
pub(super) const TOKENS: u8 = 0xC0;

/// Before the members of an object taken as JSON.
pub(super) const OBJECT: u8 = 0xF5;
/// Behind them.
pub(super) const OBJECT_END: u8 = 0xF6;
/// Before the values of an array taken as JSON.
pub(super) const ARRAY: u8 = 0xF7;
/// Behind them.
pub(super) const ARRAY_END: u8 = 0xF8;
/// Before a member's name.
pub(super) const KEY: u8 = 0xF9;
/// Before a string.
pub(super) const STRING: u8 = 0xFA;
/// Before a number, `true`, `false` or `null`.
pub(super) const LITERAL: u8 = 0xFB;
