//! Reading a trace: lines that make sense, no more of them than are wanted.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use anyhow::{anyhow, ensure};

use super::{BLOCK_TOKENS, Trace, TraceLine};

/// Requests of a trace at most; of a longer one the first so many have to be asked for.
const REQUESTS_MAX: usize = 2_000_000;

/// The longest line, bytes: the longest request in pieces of 16 tokens, twice.
const LINE_BYTES_MAX: u32 = 32 << 20;
/// The longest prompt and the longest answer, tokens: as long as the longest context of any engine. Engines hash a prompt
/// block by block, so a wrong length would cost memory.
const REQUEST_TOKENS_MAX: u32 = 10_000_000;

impl Trace {
    /// Reads a trace from a file, or its first requests.
    pub fn open(path: &Path, first: Option<usize>) -> anyhow::Result<Self> {
        let read = || Self::read(BufReader::new(File::open(path)?), first);
        read().map_err(|error| anyhow!("cannot read the trace {}: {error:#}", path.display()))
    }

    /// Reads a trace, or its first requests.
    pub fn read(mut from: impl BufRead, first: Option<usize>) -> anyhow::Result<Self> {
        let mut lines = Vec::new();
        let mut bytes = Vec::new();
        for number in 1.. {
            if first.is_some_and(|first| lines.len() >= first) {
                break;
            }
            bytes.clear();
            let most = u64::from(LINE_BYTES_MAX) + 1;
            let read = from.by_ref().take(most).read_until(b'\n', &mut bytes)?;
            if read == 0 {
                break;
            }
            let Some(line) = parse(&bytes).map_err(|error| {
                anyhow!(
                    "line {number}: {error:#}; a line is like \
                     {{\"timestamp\": 27, \"input_length\": 700, \"output_length\": 120, \"hash_ids\": [81, 12]}}, with one id \
                     for each {BLOCK_TOKENS} tokens of the prompt"
                )
            })?
            else {
                continue;
            };
            ensure!(
                lines.len() < REQUESTS_MAX,
                "there are more than {REQUESTS_MAX} requests in it; ask for the first ones (isotherm-sim: --first)"
            );
            lines.push(line);
        }
        ensure!(!lines.is_empty(), "there is no request in it");
        Ok(Self::new(lines))
    }
}

/// The request of a line; `None` for an empty line.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<TraceLine>> {
    ensure!(
        bytes.len() <= LINE_BYTES_MAX as usize,
        "more than {LINE_BYTES_MAX} bytes"
    );
    let text = str::from_utf8(bytes)?.trim_end();
    if text.trim().is_empty() {
        return Ok(None);
    }
    let line: TraceLine = serde_json::from_str(text).map_err(|error| {
        // The error counts lines of this text, which is a line of the file.
        anyhow!(
            error
                .to_string()
                .replace(" at line 1 column ", " at column ")
        )
    })?;
    let (timestamp, input) = (line.timestamp, u64::from(line.input_length));
    ensure!(
        timestamp.is_finite() && timestamp >= 0.0,
        "a timestamp of {timestamp}"
    );
    ensure!(input > 0, "a prompt of no tokens");
    for (what, tokens) in [
        ("a prompt", line.input_length),
        ("an answer", line.output_length),
    ] {
        ensure!(
            tokens <= REQUEST_TOKENS_MAX,
            "{what} of {tokens} tokens; the most is {REQUEST_TOKENS_MAX}"
        );
    }
    let held = line.hash_ids.len() as u64 * u64::from(BLOCK_TOKENS);
    let sum: u64 = line
        .pieces
        .iter()
        .map(|(_, tokens)| u64::from(*tokens))
        .sum();
    if line.pieces.is_empty() {
        ensure!(
            input <= held,
            "a prompt of {input} tokens in blocks for {held}"
        );
    } else {
        ensure!(
            input == sum,
            "a prompt of {input} tokens in pieces of {sum}"
        );
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::super::tests::TRACE;
    use super::*;

    fn read(text: &str) -> anyhow::Result<Trace> {
        Trace::read(text.as_bytes(), None)
    }

    #[test]
    fn an_invalid_line_is_named() {
        let wrong = format!(
            "{TRACE}{}",
            r#"{"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0]}"#
        );
        let error = read(&wrong).unwrap_err().to_string();
        assert!(
            error.starts_with("line 5: a prompt of 900 tokens in blocks for 512; a line is like"),
            "{error}"
        );
        assert_eq!(
            read("").unwrap_err().to_string(),
            "there is no request in it"
        );
        let pieces =
            r#"{"timestamp": 0, "input_length": 9, "output_length": 5, "pieces": [[1, 8]]}"#;
        assert!(
            read(pieces)
                .unwrap_err()
                .to_string()
                .contains("in pieces of 8")
        );
    }

    #[test]
    fn lengths_beyond_every_engine_are_rejected() {
        let error = |input: u32, output: u32| {
            let line = format!(
                r#"{{"timestamp": 0, "input_length": {input}, "output_length": {output}, "pieces": [[1, {input}]]}}"#
            );
            read(&line).err().map(|error| error.to_string())
        };
        assert_eq!(error(REQUEST_TOKENS_MAX, REQUEST_TOKENS_MAX), None);
        let prompt = error(u32::MAX, 5).unwrap();
        assert!(prompt.starts_with("line 1: a prompt of 4294967295 tokens; the most is"));
        let answer = error(5, u32::MAX).unwrap();
        assert!(answer.starts_with("line 1: an answer of 4294967295 tokens; the most is"));
    }

    #[test]
    fn an_endless_line_is_rejected_before_it_is_read() {
        let endless = TRACE.as_bytes().chain(std::io::repeat(b' '));
        let error = Trace::read(BufReader::new(endless), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("line 5: more than 33554432 bytes"),
            "{text}"
        );
        let text = b"\xff\n";
        let error = Trace::read(text.as_slice(), None).unwrap_err().to_string();
        assert!(error.starts_with("line 1: invalid utf-8"), "{error}");
    }

    #[test]
    fn only_the_wanted_number_of_requests_is_read() {
        assert_eq!(
            Trace::read(TRACE.as_bytes(), Some(2))
                .unwrap()
                .lines()
                .len(),
            2
        );
    }

    #[test]
    fn an_error_counts_lines_from_one() {
        let error = read(&format!("{TRACE}no request")).unwrap_err().to_string();
        assert!(error.starts_with("line 5: expected "), "{error}");
        assert!(
            error.contains(" at column 2;") && !error.contains("line 1"),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let error = Trace::open(Path::new("no-such-file.jsonl"), None).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot read the trace no-such-file.jsonl: "),
            "{text}"
        );
    }
}
