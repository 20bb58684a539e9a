//! Server-sent events out of chunks of bytes: only what chat completions need.

/// A line longer than this is no event of ours; the stream counts as broken.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// Takes chunks, gives the `data:` lines in them.
#[derive(Debug, Default)]
pub struct EventParser {
    pending: Vec<u8>,
}

/// A line grew past its limit.
#[derive(Debug, PartialEq, Eq)]
pub struct LineTooLong;

impl EventParser {
    /// Hands every `data:` line that this chunk completes to `event`, without the field's name.
    ///
    /// # Errors
    /// When a line is longer than 1 MiB.
    pub fn feed(&mut self, chunk: &[u8], mut event: impl FnMut(&[u8])) -> Result<(), LineTooLong> {
        let mut rest = chunk;
        while let Some((line, after)) = split_line(rest) {
            rest = after;
            if self.pending.is_empty() {
                data(line, &mut event);
            } else {
                self.pending.extend_from_slice(line);
                data(&self.pending, &mut event);
                self.pending.clear();
            }
        }
        self.pending.extend_from_slice(rest);
        if self.pending.len() > LINE_BYTES_MAX {
            Err(LineTooLong)
        } else {
            Ok(())
        }
    }
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at(end);
    Some((line, rest.get(1..).unwrap_or_default()))
}

fn data(line: &[u8], event: &mut impl FnMut(&[u8])) {
    if let Some(data) = line.strip_prefix(b"data:") {
        event(data.trim_ascii());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_arrive() {
        let stream = b"data: {\"a\":1}\r\n\r\n: comment\ndata:{\"b\":2}\n\ndata: [DONE]\n\n";
        for size in 1..stream.len() {
            let mut events = EventParser::default();
            let mut seen = Vec::new();
            for chunk in stream.chunks(size) {
                events
                    .feed(chunk, |data| {
                        seen.push(String::from_utf8_lossy(data).into_owned())
                    })
                    .unwrap();
            }
            assert_eq!(
                seen,
                ["{\"a\":1}", "{\"b\":2}", "[DONE]"],
                "chunks of {size}"
            );
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut events = EventParser::default();
        let chunk = [b'x'; 1024];
        assert!((0..1025).any(|_| events.feed(&chunk, |_| ()) == Err(LineTooLong)));
    }
}
