//! Finds the id of a response that the engine may store.
//!
//! The first member `id` of a response is its own: of a whole one, and of the event `response.created` that opens a stream. Text inside a
//! JSON string cannot imitate it, because its quotes are escaped. Objects of the client that engines repeat come behind the id.

use isotherm_fingerprint::stored_response::{self, ID_BYTES_MAX};
use memchr::memmem;

const KEY: &[u8] = br#""id""#;
/// Bytes of a response that are searched: engines write the id first, or behind two times.
const SEARCHED_BYTES_MAX: usize = 4 * 1024;

/// Reads the beginning of a response, and keeps what a piece cuts.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseId {
    found: Option<String>,
    is_over: bool,
    read_bytes: usize,
    cut: Vec<u8>,
}

/// The result of a search.
#[derive(Debug)]
enum Search {
    /// The first member `id` has this value, which is an id of a stored response or none.
    Found(Option<String>),
    /// The text from this offset on may be the beginning of the member.
    Cut(usize),
}

impl ResponseId {
    /// Reads the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) {
        if self.is_over {
            return;
        }
        self.read_bytes = self.read_bytes.saturating_add(piece.len());
        let mut text = std::mem::take(&mut self.cut);
        let search = if text.is_empty() {
            search(piece)
        } else {
            text.extend_from_slice(piece);
            search(&text)
        };
        match search {
            Search::Found(id) => {
                self.found = id;
                self.is_over = true;
            }
            Search::Cut(_) if self.read_bytes >= SEARCHED_BYTES_MAX => self.is_over = true,
            Search::Cut(from) => {
                let whole = if text.is_empty() { piece } else { &text };
                self.cut = whole.get(from..).unwrap_or_default().to_vec();
            }
        }
    }

    pub(super) fn get(&self) -> Option<&str> {
        self.found.as_deref()
    }
}

fn search(text: &[u8]) -> Search {
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| memmem::find(rest, KEY)) {
        let start = from + at;
        from = start + KEY.len();
        let rest = text.get(from..).unwrap_or_default().trim_ascii_start();
        let value = match rest {
            [] => return Search::Cut(start),
            [b':', value @ ..] => value.trim_ascii_start(),
            // A value, not a name.
            _ => continue,
        };
        return match value {
            [] => Search::Cut(start),
            [b'"', id @ ..] => match memchr::memchr(b'"', id).and_then(|end| id.get(..end)) {
                Some(id) => Search::Found(stored(id)),
                None if id.len() > ID_BYTES_MAX => Search::Found(None),
                None => Search::Cut(start),
            },
            _ => Search::Found(None),
        };
    }
    Search::Cut(text.len().saturating_sub(KEY.len() - 1).max(from))
}

fn stored(id: &[u8]) -> Option<String> {
    let is_stored = stored_response::is_id(id);
    let id = str::from_utf8(id).ok().filter(|_| is_stored);
    id.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(body: &str, piece_bytes: usize) -> Option<String> {
        let mut id = ResponseId::default();
        for piece in body.as_bytes().chunks(piece_bytes) {
            id.feed(piece);
        }
        id.get().map(str::to_owned)
    }

    #[test]
    fn the_first_id_of_a_response_is_found_in_pieces_of_any_size() {
        for body in [
            r#"{"id":"resp_0a","object":"response","output":[{"id":"msg_1"}]}"#,
            "{ \"created_at\" : 1, \"id\" : \"resp_0a\", \"metadata\": {\"id\":\"resp_evil\"}}",
            r#"{"completed_at":1,"created_at":1,"id":"resp_0a"}"#,
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_0a\"}}\n\n",
        ] {
            for piece_bytes in 1..body.len() {
                assert_eq!(
                    find(body, piece_bytes).as_deref(),
                    Some("resp_0a"),
                    "{body}"
                );
            }
        }
    }

    #[test]
    fn a_response_that_begins_with_another_id_has_none() {
        for body in [
            r#"{"id":"chatcmpl-1","choices":[{"id":"resp_0a"}]}"#,
            r#"{"id":7,"x":{"id":"resp_0a"}}"#,
            r#"{"text":"\"id\":\"resp_0a\"","kind":"id"}"#,
            r#"{"previous_response_id":"resp_0a"}"#,
            r#"{"id":"resp_0a;broke=1"}"#,
            r#"{"id":"resp_0a"#,
        ] {
            for piece_bytes in 1..body.len() {
                assert_eq!(find(body, piece_bytes), None, "{body}");
            }
        }
    }

    #[test]
    fn the_search_is_bounded() {
        let far = format!(
            r#"{{"text":"{}","id":"resp_0a"}}"#,
            "x".repeat(SEARCHED_BYTES_MAX)
        );
        assert_eq!(find(&far, 100), None);
        let mut endless = ResponseId::default();
        endless.feed(br#"{"id":""#);
        for _ in 0..100 {
            endless.feed(&[b'x'; 100]);
            assert!(endless.cut.len() <= ID_BYTES_MAX + 16);
        }
    }
}
