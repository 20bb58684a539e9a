//! The events before the first token of a stream.
//!
//! Engines and gateways keep a silent stream alive by comments (`:`) and by events named `ping`. A stream of OpenAI's responses
//! API opens with `response.created` and its like, which engines send before they compute the prompt. The time to first token
//! ends with the first event behind all of these. It has a token, or comes with one.

use memchr::memchr2;

/// Names of events that keep a stream alive.
const KEEP_ALIVE: [&[u8]; 4] = [b"ping", b"keepalive", b"keep-alive", b"heartbeat"];
/// The beginning of the names of all events of the responses API.
const RESPONSES: &[u8] = b"response.";
/// Ends of the names of events with a token.
const TOKEN: &[u8] = b".delta";
/// Events of the responses API at the end of a stream without a token.
const LAST: [&[u8]; 3] = [
    b"response.completed",
    b"response.incomplete",
    b"response.failed",
];
/// The texts before the name of an event in its data. White space may stand between them.
const BEFORE_TYPE: [&[u8]; 4] = [b"{", b"\"type\"", b":", b"\""];
/// A mark that may stand before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
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
    /// Whether the event that has not ended yet is named as one without a token.
    is_opening: bool,
    /// Whether the last byte was a carriage return, with which a line feed is one end of a line.
    has_return: bool,
}

/// The part of a line in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    /// The line, or what there is of it, tells nothing.
    Neutral,
    /// The end of an event.
    Blank,
    /// The name of an event without a token.
    OpeningName,
    /// The first token, or an event that comes with it.
    Token,
}

impl OpeningEvents {
    /// Reads a piece. Returns whether the stream has its first token by now.
    pub(super) fn has_token(&mut self, piece: &[u8]) -> bool {
        self.read_bytes += piece.len();
        let mut rest = piece;
        if self.has_return {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some((line, end)) =
            memchr2(b'\n', b'\r', rest).and_then(|at| rest.split_at_checked(at))
        {
            self.extend_line(line);
            if self.end_line() {
                return true;
            }
            rest = end
                .strip_prefix(b"\r\n")
                .or(end.get(1..))
                .unwrap_or_default();
        }
        self.has_return = piece.ends_with(b"\r");
        self.extend_line(rest);
        let is_whole = self.line.len() >= NAME_BYTES;
        read(&self.line, is_whole, self.is_opening) == Line::Token
            || self.read_bytes > OPENING_BYTES_MAX
    }

    fn extend_line(&mut self, piece: &[u8]) {
        let room = NAME_BYTES.saturating_sub(self.line.len());
        self.line.extend(piece.iter().take(room));
    }

    /// Ends the line. Returns whether the stream has its first token by now.
    fn end_line(&mut self) -> bool {
        let line = read(&self.line, true, self.is_opening);
        self.line.clear();
        match line {
            Line::Neutral => {}
            Line::Blank => self.is_opening = false,
            Line::OpeningName => self.is_opening = true,
            Line::Token => return true,
        }
        false
    }
}

/// Reads a line, or the beginning of one that is not whole, in an event that is named as one without a token or not.
fn read(line: &[u8], is_whole: bool, is_opening: bool) -> Line {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if !is_whole && BYTE_ORDER_MARK.starts_with(line) {
        return Line::Neutral;
    }
    let mut parts = line.splitn(2, |byte| *byte == b':');
    let field = parts.next().unwrap_or_default();
    let Some(value) = parts.next() else {
        return match field {
            b"" => Line::Blank,
            _ if is_whole && !is_field(field) || !may_be_field(field) => Line::Token,
            _ => Line::Neutral,
        };
    };
    let value = value.trim_ascii();
    match field {
        b"event" if !is_whole => Line::Neutral,
        b"event" if is_opening_name(value) => Line::OpeningName,
        b"data" if is_opening || value.is_empty() => Line::Neutral,
        b"data" => read_data(value, is_whole),
        // A comment, the id of an event, or the time to wait before a new connection.
        b"" | b"id" | b"retry" => Line::Neutral,
        _ => Line::Token,
    }
}

/// Reads data, which has a token unless its type is one of an event without.
fn read_data(mut data: &[u8], is_whole: bool) -> Line {
    for text in BEFORE_TYPE {
        if !is_whole && text.starts_with(data) {
            return Line::Neutral;
        }
        let Some(rest) = data.strip_prefix(text) else {
            return Line::Token;
        };
        // A name has no space in front.
        data = if text == b"\"" {
            rest
        } else {
            rest.trim_ascii_start()
        };
    }
    let mut parts = data.splitn(2, |byte| *byte == b'"');
    let name = parts.next().unwrap_or_default();
    if parts.next().is_none() && !is_whole || is_opening_name(name) {
        return Line::Neutral;
    }
    Line::Token
}

/// Whether an event of this name comes before the first token.
fn is_opening_name(name: &[u8]) -> bool {
    KEEP_ALIVE.contains(&name)
        || name.starts_with(RESPONSES) && !name.ends_with(TOKEN) && !LAST.contains(&name)
}

const FIELDS: [&[u8]; 4] = [b"event", b"data", b"id", b"retry"];

fn is_field(name: &[u8]) -> bool {
    FIELDS.contains(&name)
}

fn may_be_field(beginning: &[u8]) -> bool {
    FIELDS.iter().any(|name| name.starts_with(beginning))
}
