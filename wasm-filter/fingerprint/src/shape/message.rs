//! The members of messages and of their parts.
//!
//! One table serves all shapes: OpenAI's parts, Responses items and Anthropic's blocks mostly share their names, and the
//! other names do not clash. The name decides, not `type`, because `type` may come last.

use super::mode::{Attribute, Mode};

/// The mode of a member of a message, and whether the member's name is hashed with it.
pub(crate) fn message_member(name: &[u8]) -> (Mode, bool) {
    let attribute = match name {
        b"role" => Attribute::Role,
        b"name" => Attribute::Name,
        b"tool_call_id" | b"call_id" => Attribute::Call,
        _ => return part_member(name),
    };
    (Mode::Attribute(attribute), false)
}

/// The mode of a member of a part, and whether the member's name is hashed with it.
///
/// An unknown member may render, so it is hashed as JSON under its name.
pub(crate) fn part_member(name: &[u8]) -> (Mode, bool) {
    match name {
        b"content" | b"text" | b"output" => (Mode::Parts, false),
        // Templates render these apart from the other text.
        b"reasoning_content" | b"reasoning" | b"thinking" | b"summary" | b"refusal"
        | b"arguments" => (Mode::Parts, true),
        b"image_url" | b"image" | b"input_audio" | b"audio_url" | b"audio" | b"video_url"
        | b"video" | b"source" | b"file" | b"file_data" | b"file_id" | b"file_url" => {
            (Mode::Media, false)
        }
        // `cache_control` moves from message to message as a conversation grows; the server sets `status` and `id`.
        b"type" | b"cache_control" | b"detail" | b"id" | b"status" | b"index" | b"annotations"
        | b"logprobs" => (Mode::Skip, false),
        _ => (Mode::Json, true),
    }
}

/// Whether a member of an image, audio, video or file describes only the encoding of the data.
pub(crate) fn is_media_encoding(name: &[u8]) -> bool {
    matches!(
        name,
        b"type" | b"detail" | b"format" | b"media_type" | b"filename" | b"cache_control"
    )
}
