//! What the members of a message, or of a part of one, mean.
//!
//! One table for all shapes: OpenAI's parts, Responses items and Anthropic's blocks name the same things alike, and where they
//! do not, the names do not clash. The name decides, not `type`: `type` may come last.

/// How to read a member of a message or a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// The text, or the parts.
    Parts,
    /// Text or parts that render apart from the others, so that the name counts too.
    NamedParts,
    /// An image, audio, video or file.
    Media,
    /// Who says it, or what it answers: hashed when the message has ended.
    Trailer(Trailer),
    /// Nothing that renders.
    Nothing,
    /// Anything else: taken as JSON, name included, since it may render.
    Json,
}

/// What says whose a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trailer {
    /// `role`
    Role,
    /// `name`
    Name,
    /// The call that a tool's message answers.
    Call,
}

/// How many trailers there are.
pub(crate) const TRAILERS: usize = Trailer::Call as usize + 1;

/// How to read this member of a message.
pub(crate) fn of_message(name: &[u8]) -> Item {
    match name {
        b"role" => Item::Trailer(Trailer::Role),
        b"name" => Item::Trailer(Trailer::Name),
        b"tool_call_id" | b"call_id" => Item::Trailer(Trailer::Call),
        _ => of_part(name),
    }
}

/// How to read this member of a part.
pub(crate) fn of_part(name: &[u8]) -> Item {
    match name {
        b"content" | b"text" | b"output" => Item::Parts,
        b"reasoning_content" | b"reasoning" | b"thinking" | b"summary" | b"refusal"
        | b"arguments" => Item::NamedParts,
        b"image_url" | b"image" | b"input_audio" | b"audio_url" | b"audio" | b"video_url"
        | b"video" | b"source" | b"file" | b"file_data" | b"file_id" | b"file_url" => Item::Media,
        // `cache_control` moves from message to message as a conversation grows, `status` and `id` are the server's.
        b"type" | b"cache_control" | b"detail" | b"id" | b"status" | b"index" | b"annotations"
        | b"logprobs" => Item::Nothing,
        _ => Item::Json,
    }
}

/// Whether this member of an image, audio, video or file says only how its data is spelled.
pub(crate) fn describes_media(name: &[u8]) -> bool {
    matches!(
        name,
        b"type" | b"detail" | b"format" | b"media_type" | b"filename" | b"cache_control"
    )
}

/// Whether this member of any JSON value renders nowhere.
pub(crate) fn renders_nowhere(name: &[u8]) -> bool {
    name == b"cache_control"
}
