//! Cuts a stream of bytes into lines, within bounds.

/// Cuts a stream of bytes into lines. Every byte belongs to exactly one line, and a line keeps its line feed, so that the
/// lines together are the file again.
#[derive(Debug)]
pub struct LineSplitter {
    line: Vec<u8>,
    line_bytes_max: usize,
    lines_max: u64,
    bytes_max: u64,
    lines: u64,
    bytes: u64,
}

/// A file that does not fit the bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// One line is too long.
    #[error("line {line} has more than {bytes_max} bytes: shorten its request")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Bound in bytes.
        bytes_max: usize,
    },
    /// Too many lines.
    #[error("the file has more than {0} lines: split it into several files")]
    Lines(u64),
    /// Too many bytes.
    #[error("the file has more than {0} bytes: split it into several files")]
    Bytes(u64),
}

impl LineSplitter {
    /// Creates a splitter with the bounds of a file: bytes of a line, lines, and bytes.
    #[must_use]
    pub fn new(line_bytes_max: usize, lines_max: u64, bytes_max: u64) -> Self {
        Self {
            line: Vec::new(),
            line_bytes_max,
            lines_max,
            bytes_max,
            lines: 0,
            bytes: 0,
        }
    }

    /// Takes the next bytes, and appends every line that is complete to `lines`.
    ///
    /// # Errors
    /// The bound that the file exceeds.
    pub fn push(&mut self, mut bytes: &[u8], lines: &mut Vec<Vec<u8>>) -> Result<(), SplitError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.bytes_max {
            return Err(SplitError::Bytes(self.bytes_max));
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            self.extend(line)?;
            lines.push(self.take()?);
            bytes = rest;
        }
        self.extend(bytes)
    }

    /// Ends the file. Returns the last line, if it has no line feed.
    ///
    /// # Errors
    /// The file has too many lines.
    pub fn finish(&mut self) -> Result<Option<Vec<u8>>, SplitError> {
        match self.line.is_empty() {
            true => Ok(None),
            false => self.take().map(Some),
        }
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Lines so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), SplitError> {
        if self.line.len() + bytes.len() > self.line_bytes_max {
            return Err(SplitError::Line {
                line: self.lines + 1,
                bytes_max: self.line_bytes_max,
            });
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<u8>, SplitError> {
        self.lines += 1;
        if self.lines > self.lines_max {
            return Err(SplitError::Lines(self.lines_max));
        }
        Ok(std::mem::take(&mut self.line))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_giant_line_is_refused_with_its_number_before_it_is_held() {
        let mut splitter = LineSplitter::new(10, 100, 1 << 30);
        let mut lines = Vec::new();
        splitter.push(b"short\n", &mut lines).unwrap();
        let error = (0..1_000).find_map(|_| splitter.push(b"xxxx", &mut lines).err());
        let (line, bytes_max) = (2, 10);
        assert_eq!(error, Some(SplitError::Line { line, bytes_max }));
        assert!(splitter.line.len() <= 10);
    }

    #[test]
    fn the_bounds_of_a_file_hold() {
        let mut lines = Vec::new();
        let mut splitter = LineSplitter::new(10, 2, 100);
        assert_eq!(
            splitter.push(b"\n\n\n", &mut lines),
            Err(SplitError::Lines(2))
        );
        let mut splitter = LineSplitter::new(10, 2, 5);
        assert_eq!(
            splitter.push(b"123456", &mut lines),
            Err(SplitError::Bytes(5))
        );
    }

    proptest! {
        #[test]
        fn the_lines_together_are_the_file(
            file in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
            cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let mut splitter = LineSplitter::new(1_000, 1_000, 1_000);
            let (mut lines, mut rest) = (Vec::new(), &file[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, tail) = rest.split_at((*cut).min(rest.len()));
                splitter.push(chunk, &mut lines).unwrap();
                rest = tail;
            }
            lines.extend(splitter.finish().unwrap());
            prop_assert_eq!(lines.concat(), file.clone());
            prop_assert_eq!(splitter.lines(), lines.len() as u64);
            prop_assert_eq!(splitter.bytes(), file.len() as u64);
            prop_assert!(lines.iter().all(|line| !line[..line.len() - 1].contains(&b'\n')));
        }
    }
}
