//! Finds the model in a form (`multipart/form-data`), such as the upload of an audio file, as it streams in.
//!
//! A form is read by lines: a line that begins with the boundary ends a part, also within binary data, since no data may have
//! such a line. Only the beginning of a line is kept.

use alloc::string::String;
use alloc::vec::Vec;

use memchr::memchr;

/// Bytes that are kept of a line: more than the header of any field, and than the name of any model.
const LINE_BYTES_MAX: usize = 512;
/// The header of a part that names its field.
const HEADER: &[u8] = b"content-disposition:";
/// The parameter of the field, as clients write it.
const NAMES: [&[u8]; 2] = [b"name=\"model\"", b"name=model"];

/// Reads a form.
#[derive(Debug)]
pub struct FormReader {
    /// Two hyphens and the boundary.
    delimiter: Vec<u8>,
    line: Vec<u8>,
    position: Position,
    model: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// In front of the first part, or in the content of a part.
    Content,
    /// In the headers of a part.
    Headers { has_name: bool },
    /// In front of the model.
    Model,
    /// Behind the last part.
    End,
}

impl FormReader {
    /// A reader for a form with this boundary.
    #[must_use]
    pub fn new(boundary: &[u8]) -> Self {
        Self {
            delimiter: [b"--", boundary].concat(),
            line: Vec::new(),
            position: Position::Content,
            model: None,
        }
    }

    /// Reads the next piece of the body.
    pub fn feed(&mut self, mut piece: &[u8]) {
        while let Some(at) = memchr(b'\n', piece) {
            let (line, rest) = piece.split_at(at);
            self.extend_line(line);
            self.end_line();
            piece = rest.get(1..).unwrap_or_default();
        }
        self.extend_line(piece);
    }

    /// The model, and whether the form has ended.
    #[must_use]
    pub fn finish(mut self) -> (Option<String>, bool) {
        self.end_line();
        (self.model, self.position == Position::End)
    }

    fn extend_line(&mut self, piece: &[u8]) {
        let room = LINE_BYTES_MAX.saturating_sub(self.line.len());
        self.line.extend(piece.iter().take(room));
    }

    fn end_line(&mut self) {
        let line = core::mem::take(&mut self.line);
        let text = line.strip_suffix(b"\r").unwrap_or(&line);
        let behind = text.strip_prefix(&*self.delimiter);
        self.position = match (behind.map(<[u8]>::trim_ascii_end), self.position) {
            (_, Position::End) | (Some(b"--"), _) => Position::End,
            (Some(b""), _) => Position::Headers { has_name: false },
            (_, Position::Headers { has_name: true }) if text.is_empty() => Position::Model,
            (_, Position::Headers { .. }) if text.is_empty() => Position::Content,
            (_, Position::Headers { has_name }) => Position::Headers {
                has_name: has_name || names_model(text),
            },
            (_, Position::Model) => {
                if self.model.is_none() && !text.is_empty() {
                    self.model = Some(String::from_utf8_lossy(text).into_owned());
                }
                Position::Content
            }
            (_, Position::Content) => Position::Content,
        };
        self.line = line;
        self.line.clear();
    }
}

/// Whether a header of a part names the field of the model.
fn names_model(header: &[u8]) -> bool {
    let is_header = header
        .get(..HEADER.len())
        .is_some_and(|name| name.eq_ignore_ascii_case(HEADER));
    let mut parameters = header.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    is_header && parameters.any(|parameter| NAMES.contains(&parameter))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"model\"\r\n\
        Content-Type: audio/wav\r\n\r\nRIFF\n\r\n--a\r\nmodel\r\n--b\r\n\
        content-disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--b--\r\nmore";

    fn read(form: &str, piece_bytes: usize) -> (Option<String>, bool) {
        let mut reader = FormReader::new(b"b");
        for piece in form.as_bytes().chunks(piece_bytes) {
            reader.feed(piece);
        }
        reader.finish()
    }

    #[test]
    fn the_model_is_found_wherever_the_pieces_end() {
        for piece_bytes in 1..=FORM.len() {
            let found = read(FORM, piece_bytes);
            assert_eq!(found, (Some("whisper-1".into()), true), "{piece_bytes}");
        }
        let plain = "--b\nContent-Disposition: form-data;name=model\n\nwhisper-1\n--b--";
        assert_eq!(read(plain, 7), (Some("whisper-1".into()), true));
    }

    #[test]
    fn a_form_without_a_model_has_ended_and_one_that_is_cut_has_not() {
        let other = FORM.replace("name=\"model\"\r", "name=\"language\"\r");
        assert_eq!(read(&other, 9), (None, true));
        assert_eq!(read(&FORM[..100], 9), (None, false));
        assert_eq!(read("{\"model\":\"a\"}", 9), (None, false));
    }
}
