//! The events before the first token of a stream.
//!
//! A stream of OpenAI's responses API opens with `response.created` and its like, which engines send before they compute the
//! prompt. The time to first token ends with the first event behind them. Every other API's first event has a token, or comes
//! with it.

use memchr::memchr;

/// Beginnings of a stream of the responses API.
const BEGINNINGS: [&[u8]; 4] = [
    b"event: response.",
    b"event:response.",
    b"data: {\"type\":\"response.",
    b"data: {\"type\": \"response.",
];
/// Text before an event's name in a line, and the byte behind the name, if it is not the end of the line.
const BEFORE_NAME: [(&[u8], Option<u8>); 4] = [
    (b"event: ", None),
    (b"event:", None),
    (b"data: {\"type\":\"", Some(b'"')),
    (b"data: {\"type\": \"", Some(b'"')),
];
/// Ends of the names of events with a token.
const TOKEN: &[u8] = b".delta";
/// Events at the end of a stream without a token.
const LAST: [&[u8]; 4] = [
    b"response.completed",
    b"response.incomplete",
    b"response.failed",
    b"error",
];
/// Bytes of a line that hold an event's name.
const NAME_BYTES: usize = 96;
/// A longer opening counts as the first token.
const OPENING_BYTES_MAX: usize = 256 * 1024;

/// Reads the beginning of a stream. It reads names of events only: `response.created` repeats text of the client.
#[derive(Clone, Debug, Default)]
pub(super) struct OpeningEvents {
    read_bytes: usize,
    /// The beginning of the line that has not ended yet.
    line: Vec<u8>,
}

impl OpeningEvents {
    /// Reads a piece. Returns whether the stream has its first token by now.
    pub(super) fn has_token(&mut self, piece: &[u8]) -> bool {
        let is_first = self.read_bytes == 0;
        self.read_bytes += piece.len();
        if is_first && !BEGINNINGS.iter().any(|begin| piece.starts_with(begin)) {
            return true;
        }
        let mut rest = piece;
        while let Some((line, behind)) =
            memchr(b'\n', rest).and_then(|at| rest.split_at_checked(at))
        {
            self.extend_line(line);
            if is_end_of_opening(&self.line) {
                return true;
            }
            self.line.clear();
            rest = behind.get(1..).unwrap_or_default();
        }
        self.extend_line(rest);
        self.read_bytes > OPENING_BYTES_MAX
    }

    fn extend_line(&mut self, piece: &[u8]) {
        let room = NAME_BYTES.saturating_sub(self.line.len());
        self.line.extend(piece.iter().take(room));
    }
}

/// Whether a line names an event with a token, or at the end of a stream.
fn is_end_of_opening(line: &[u8]) -> bool {
    let name = BEFORE_NAME.iter().find_map(|(before, end)| {
        let rest = line.strip_prefix(*before)?;
        rest.split(|byte| Some(*byte) == *end).next()
    });
    let name = name.unwrap_or_default().trim_ascii();
    name.ends_with(TOKEN) || LAST.contains(&name)
}
