//! Adapters of a replica's requests, from `vllm:lora_requests_info`.
//!
//! The names are in labels, separated by commas, and the value of the series is the time of its last change. A change of
//! names makes a new series, and the old ones stay on the page until the engine restarts: the one with the largest value
//! counts.

use super::exposition::{Labels, Sample};

/// The longest name of an adapter, in bytes.
pub(super) const NAME_BYTES_MAX: usize = 256;
/// The most names that are read from one label.
const NAMES_MAX: usize = 256;

/// Adapters of a replica's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReportedAdapters {
    /// Adapters that the replica serves at a time.
    pub(crate) slots: Option<u32>,
    pub(crate) running: Vec<String>,
    pub(crate) waiting: Vec<String>,
}

/// The newest series of a page so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AdapterSeries<'a>(Option<(f64, Labels<'a>)>);

impl<'a> AdapterSeries<'a> {
    pub(super) fn record(&mut self, sample: Sample<'a>) {
        let Some((labels, value)) = sample.read() else {
            return;
        };
        let is_newer = |(newest, _): (f64, Labels<'_>)| value >= newest;
        if value.is_finite() && self.0.is_none_or(is_newer) {
            self.0 = Some((value, labels));
        }
    }

    /// Reads the newest series; `None` without one, and for an engine that serves no adapters.
    pub(super) fn newest(self) -> Option<ReportedAdapters> {
        let (_, labels) = self.0?;
        let slots = labels.number("max_lora");
        if slots == Some(0) {
            return None;
        }
        let names = |label| labels.get(label).map(names).unwrap_or_default();
        Some(ReportedAdapters {
            slots: slots.and_then(|slots| u32::try_from(slots).ok()),
            running: names("running_lora_adapters"),
            waiting: names("waiting_lora_adapters"),
        })
    }
}

fn names(label: &[u8]) -> Vec<String> {
    let text = unescape(label);
    let names = text.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
        .take(NAMES_MAX)
        .map(str::to_owned)
        .collect()
}

/// Replaces the escapes of a label: a backslash, a quote, a line feed.
fn unescape(label: &[u8]) -> String {
    let text = String::from_utf8_lossy(label);
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('n') => plain.push('\n'),
                Some(escaped) => plain.push(escaped),
                None => {}
            },
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::exposition::samples;

    fn read(page: &str) -> Option<ReportedAdapters> {
        let mut series = AdapterSeries::default();
        for sample in samples(page.as_bytes()) {
            series.record(sample);
        }
        series.newest()
    }

    fn adapters(slots: Option<u32>, running: &[&str], waiting: &[&str]) -> ReportedAdapters {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        ReportedAdapters {
            slots,
            running: owned(running),
            waiting: owned(waiting),
        }
    }

    #[test]
    fn the_series_with_the_newest_value_counts() {
        let page = r#"
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 1.7637e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters="c"} 1.763700001e+09
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.7636e+09
"#;
        assert_eq!(read(page), Some(adapters(Some(4), &["a", "b"], &["c"])));
    }

    #[test]
    fn names_may_have_escapes_spaces_and_empty_places() {
        let page = r#"x{waiting_lora_adapters=" sql , ,a\"b\\c",running_lora_adapters="org/x y,\n",max_lora="1",} 5"#;
        let expected = adapters(Some(1), &["org/x y"], &["sql", "a\"b\\c"]);
        assert_eq!(read(page), Some(expected));
    }

    #[test]
    fn an_engine_without_adapters_reports_none() {
        assert_eq!(read(""), None);
        let off = r#"x{max_lora="0",running_lora_adapters="",waiting_lora_adapters=""} 1"#;
        assert_eq!(read(off), None);
        assert_eq!(
            read(r#"x{max_lora="2",running_lora_adapters="a"} NaN"#),
            None
        );
    }

    #[test]
    fn missing_labels_leave_their_part_unknown() {
        assert_eq!(
            read(r#"x{running_lora_adapters="a"} 1"#),
            Some(adapters(None, &["a"], &[]))
        );
        assert_eq!(
            read(r#"x{max_lora="many"} 1"#),
            Some(adapters(None, &[], &[]))
        );
    }

    #[test]
    fn the_number_and_the_length_of_names_are_bounded() {
        let many: Vec<String> = (0..1_000).map(|n| format!("a{n}")).collect();
        let long = "l".repeat(NAME_BYTES_MAX + 1);
        let page = format!(
            r#"x{{max_lora="9",running_lora_adapters="{long},{}"}} 1"#,
            many.join(",")
        );
        let read = read(&page).unwrap();
        assert_eq!(read.running.len(), NAMES_MAX);
        assert_eq!(read.running[0], "a0");
    }
}
