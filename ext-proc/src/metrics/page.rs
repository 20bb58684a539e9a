//! Writes the metrics of collectors: a family's description, then one sample for each set of labels.

use std::borrow::Cow;
use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// Lists families whose metric has the name of the counter that it shows.
macro_rules! counters {
    ($($counter:ident: $help:literal,)*) => { &[$((stringify!($counter), $help, |c| c.$counter)),*] };
}
pub(super) use counters;

/// Units that end a metric's name.
const UNITS: [(&str, Unit); 2] = [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes)];

/// The page of one scrape.
pub(super) struct Page<'a>(DescriptorEncoder<'a>);

impl<'a> Page<'a> {
    pub(super) fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    pub(super) fn counters<'l, V: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, V); N], u64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |family| {
            samples.into_iter().try_for_each(|(labels, value)| {
                let labels = escaped(&labels);
                let mut sample = family.encode_family(&labels)?;
                sample.encode_counter::<NoLabelSet, _, u64>(&value, None)
            })
        })
    }

    pub(super) fn gauges<'l, V: AsRef<str>, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, V); N], f64)>,
    ) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, |family| {
            samples.into_iter().try_for_each(|(labels, value)| {
                let labels = escaped(&labels);
                family.encode_family(&labels)?.encode_gauge(&value)
            })
        })
    }

    /// Writes a counter without labels.
    pub(super) fn total(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |family| {
            family.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut units = UNITS.iter();
        let with_unit = units.find_map(|(end, unit)| Some((name.strip_suffix(end)?, unit)));
        let (name, unit) = with_unit.map_or((name, None), |(name, unit)| (name, Some(unit)));
        encode(&mut self.0.encode_descriptor(name, help, unit, kind)?)
    }
}

fn escaped<'a, V: AsRef<str>, const N: usize>(
    labels: &'a [(&'a str, V); N],
) -> [(&'a str, Cow<'a, str>); N] {
    labels
        .each_ref()
        .map(|(name, value)| (*name, escape(value.as_ref())))
}

/// Escapes the value of a label as the text format asks for; the library writes it as it is.
pub(super) fn escape(value: &str) -> Cow<'_, str> {
    if !value.contains(['\\', '"', '\n']) {
        return value.into();
    }
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    value.replace('\n', "\\n").into()
}

/// The value of a gauge that is 1 or 0.
pub(super) fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

/// The value of a gauge that counts.
#[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^53")]
pub(super) fn count(value: usize) -> f64 {
    value as f64
}
