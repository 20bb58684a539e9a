//! The events before the first token of a stream.
//!
//! A stream of OpenAI's responses API opens with `response.created` and its like, which engines send before they compute the
//! prompt. The time to first token ends with the first event behind them. Every other API's first event has a token, or comes
//! with it.

use memchr::memmem;

/// Beginnings of a stream of the responses API.
const BEGINNINGS: [&[u8]; 4] = [
    b"event: response.",
    b"event:response.",
    b"data: {\"type\":\"response.",
    b"data: {\"type\": \"response.",
];
/// Parts of the names of events with a token, or at the end of a stream without one.
const TOKENS: [&[u8]; 5] = [
    b".delta",
    b"response.completed",
    b"response.incomplete",
    b"response.failed",
    b"event: error",
];
/// Bytes of one piece that may belong to such a name in the next one.
const CARRIED_BYTES: usize = 18;
/// A longer opening counts as the first token.
const OPENING_BYTES_MAX: usize = 256 * 1024;

/// Reads the beginning of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct OpeningEvents {
    read_bytes: usize,
    /// The end of the last piece.
    carried: Vec<u8>,
}

impl OpeningEvents {
    /// Reads a piece. Returns whether the stream has its first token by now.
    pub(super) fn has_token(&mut self, piece: &[u8]) -> bool {
        let is_first = self.read_bytes == 0;
        self.read_bytes += piece.len();
        if is_first && !BEGINNINGS.iter().any(|begin| piece.starts_with(begin)) {
            return true;
        }
        self.carried.extend_from_slice(piece);
        let bytes = self.carried.as_slice();
        let has_token = TOKENS
            .iter()
            .any(|name| memmem::find(bytes, name).is_some());
        let kept = self.carried.len().saturating_sub(CARRIED_BYTES);
        self.carried.drain(..kept);
        has_token || self.read_bytes > OPENING_BYTES_MAX
    }
}
