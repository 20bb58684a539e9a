//! Bytes that mark structure in the hashed text.
//!
//! Unescaped text may contain any character, and no text of a client may look like structure. So each mark is a byte that
//! UTF-8 does not contain. A client that sends invalid UTF-8 can make two of its own prompts look alike, which costs it cache
//! hits; engines refuse such a body.

/// Separates two parts of a message, or two texts of a list.
pub(super) const PART: u8 = 0xFC;
/// Precedes the 8-byte digest of the name of a member that is hashed with its name.
pub(super) const NAME: u8 = 0xFD;
/// Precedes the 8-byte digest of an image, audio, video or file.
pub(super) const MEDIA: u8 = 0xFE;
/// Ends the parts of a message. Its attributes follow, each as its number and an 8-byte digest.
pub(super) const MESSAGE_END: u8 = 0xFF;
/// Precedes token ids of 4 bytes each.
pub(super) const TOKENS: u8 = 0xC0;

/// Begins an object that is hashed as JSON.
pub(super) const OBJECT: u8 = 0xF5;
/// Ends an object that is hashed as JSON.
pub(super) const OBJECT_END: u8 = 0xF6;
/// Begins an array that is hashed as JSON.
pub(super) const ARRAY: u8 = 0xF7;
/// Ends an array that is hashed as JSON.
pub(super) const ARRAY_END: u8 = 0xF8;
/// Precedes a member's name in JSON.
pub(super) const KEY: u8 = 0xF9;
/// Precedes a string in JSON.
pub(super) const STRING: u8 = 0xFA;
/// Precedes a number, `true`, `false` or `null` in JSON.
pub(super) const LITERAL: u8 = 0xFB;
