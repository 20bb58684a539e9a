//! Parses metrics pages (the Prometheus text format) for a few names, and ignores the rest.
//!
//! A busy engine's page has thousands of lines, and the service reads it several times a second. So a line with another
//! name costs one scan for its end. Names are compared whole: `vllm:num_requests_waiting` is a prefix of
//! `vllm:num_requests_waiting_by_reason`, and adding both would double the load. Labels are parsed, not searched:
//! `block_size` is a suffix of `mamba_block_size`, and a model's name may contain any character.

/// Returns the samples of a page, in its order. Other lines are skipped.
pub(super) fn samples(page: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    page.split(|&byte| byte == b'\n').filter_map(Sample::parse)
}

/// A line of a page: a name, and the unparsed rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Sample<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return None;
        }
        let end = line
            .iter()
            .position(|&byte| byte == b'{' || byte.is_ascii_whitespace())?;
        let (name, rest) = line.split_at_checked(end)?;
        (!name.is_empty()).then_some(Self { name, rest })
    }

    /// Parses the labels and the value; `None` if either is malformed.
    pub(super) fn read(self) -> Option<(Labels<'a>, f64)> {
        let rest = self.rest.trim_ascii_start();
        let (labels, rest) = match rest.strip_prefix(b"{") {
            Some(rest) => rest.split_at_checked(end_of_labels(rest)?)?,
            None => (&[][..], rest),
        };
        let rest = rest.strip_prefix(b"}").unwrap_or(rest).trim_ascii_start();
        let value = rest.split(u8::is_ascii_whitespace).next()?;
        let value = std::str::from_utf8(value).ok()?.parse().ok()?;
        Some((Labels { rest: labels }, value))
    }
}

/// Returns the position of the brace that closes the labels: the first one outside quotes.
fn end_of_labels(text: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut escaped = false;
    text.iter().position(|&byte| {
        if escaped {
            escaped = false;
            return false;
        }
        match byte {
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return true,
            _ => {}
        }
        false
    })
}

/// The labels of a sample, as `(name, value)`. Escapes in values stay: no value of interest has one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labels<'a> {
    rest: &'a [u8],
}

impl<'a> Labels<'a> {
    pub(super) fn get(self, name: &str) -> Option<&'a [u8]> {
        let mut labels = self;
        labels
            .find(|(label, _)| *label == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// Returns the value of the label `name`, if it is a whole number.
    pub(super) fn number(self, name: &str) -> Option<u64> {
        std::str::from_utf8(self.get(name)?).ok()?.parse().ok()
    }
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let separators = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        let start = self.rest.iter().position(|byte| !separators(byte))?;
        let rest = self.rest.get(start..)?;
        let (name, rest) = rest.split_at_checked(rest.iter().position(|&byte| byte == b'=')?)?;
        let value = rest.get(1..)?.trim_ascii_start().strip_prefix(b"\"")?;
        let mut escaped = false;
        let end = value.iter().position(|&byte| {
            let closes = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            closes
        })?;
        let (value, rest) = value.split_at_checked(end)?;
        self.rest = rest.get(1..)?;
        Some((name.trim_ascii(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = (String, Vec<(String, String)>, f64);

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    fn read(page: &str) -> Vec<Read> {
        samples(page.as_bytes())
            .filter_map(|sample| {
                let (labels, value) = sample.read()?;
                let labels = labels.map(|(name, value)| (text(name), text(value)));
                Some((text(sample.name), labels.collect(), value))
            })
            .collect()
    }

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(a, b)| ((*a).into(), (*b).into()))
            .collect()
    }

    #[test]
    fn names_labels_and_values_are_parsed_in_every_legal_spelling() {
        let page = "# HELP a b\na 1\nb{} 2\r\nc{x=\"1\"} 3.5e2 1700000000000\n\n  d { x = \"1\" , y=\"2\", } 4\ne\t5\n# EOF\n";
        assert_eq!(
            read(page),
            [
                ("a".into(), vec![], 1.0),
                ("b".into(), vec![], 2.0),
                ("c".into(), labels(&[("x", "1")]), 350.0),
                ("d".into(), labels(&[("x", "1"), ("y", "2")]), 4.0),
                ("e".into(), vec![], 5.0),
            ]
        );
    }

    #[test]
    fn a_label_may_contain_braces_commas_quotes_and_spaces() {
        let page = r#"a{m="x}, y=\"1\" {\\",n="2"} 7"#;
        let expected = labels(&[("m", r#"x}, y=\"1\" {\\"#), ("n", "2")]);
        assert_eq!(read(page), [("a".into(), expected, 7.0)]);
    }

    #[test]
    fn exemplars_are_ignored() {
        assert_eq!(
            read("a{x=\"1\"} 3 # {trace=\"z\"} 0.5"),
            [("a".into(), labels(&[("x", "1")]), 3.0)]
        );
    }

    #[test]
    fn malformed_lines_are_skipped() {
        assert_eq!(read("a\nb{\nc{x=\"1} 2\nd{x} \n{x=\"1\"} 3\ne one\n"), []);
    }

    #[test]
    fn labels_are_found_by_their_whole_names() {
        let page = br#"a{mamba_block_size="1",block_size="16",size="3"} 1"#;
        let (labels, _) = samples(page).next().unwrap().read().unwrap();
        assert_eq!(labels.number("block_size"), Some(16));
        assert_eq!(labels.number("size"), Some(3));
        assert_eq!(labels.number("block"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(page: Vec<u8>) {
            for sample in samples(&page) {
                if let Some((labels, _)) = sample.read() {
                    proptest::prop_assert!(labels.count() <= page.len());
                }
            }
        }
    }
}
