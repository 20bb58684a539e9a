//! Writing Prometheus' text format.

use core::fmt::{Display, Write};

use super::histogram::Histogram;

/// A metrics page under construction.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Begins a metric.
    pub(super) fn metric(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// Writes a sample. Values have a decimal point, as Python's client writes them.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        self.line(format_args!("{name}{{{labels}}} {value:?}"));
    }

    /// A gauge with one sample.
    pub(super) fn gauge(&mut self, name: &str, labels: &str, help: &str, value: f64) {
        self.metric(name, "gauge", help);
        self.sample(name, labels, value);
    }

    /// A counter with one sample.
    pub(super) fn counter(&mut self, name: &str, labels: &str, help: &str, value: u64) {
        self.metric(name, "counter", help);
        self.sample(name, labels, float(value));
    }

    /// A histogram.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &str,
        help: &str,
        histogram: &Histogram,
    ) {
        self.metric(name, "histogram", help);
        for (edge, count) in histogram.cumulative() {
            self.line(format_args!(
                "{name}_bucket{{{labels},le=\"{edge}\"}} {:?}",
                float(count)
            ));
        }
        self.sample(&format!("{name}_count"), labels, float(histogram.count()));
        self.sample(&format!("{name}_sum"), labels, histogram.sum_seconds());
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A counter as the format wants it.
#[expect(clippy::cast_precision_loss, reason = "the format holds doubles")]
pub(super) fn float(value: u64) -> f64 {
    value as f64
}

/// A label's value, escaped.
pub(super) fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
