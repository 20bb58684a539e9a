//! A row: the figures of a run.

use std::collections::BTreeMap;

use isotherm_simulator::Summary;
use serde::Serialize;
use serde_json::Value;

/// A run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Panel of the figure: mostly the workload.
    pub(crate) group: String,
    /// System under test.
    pub(crate) system: String,
    /// Value of the varied parameter, such as a rate or a number of replicas; zero when the group varies none.
    pub(crate) x: f64,
    /// Seed of the workload and of the run.
    pub(crate) seed: u64,
    /// Figures of the requests; none where requests were not played one by one.
    pub(crate) summary: Option<Summary>,
    /// Figures beyond the summary.
    pub(crate) more: BTreeMap<&'static str, f64>,
}

impl Row {
    /// Every figure by name, as in the CSV file.
    pub(crate) fn figures(&self) -> BTreeMap<String, f64> {
        let summary = serde_json::to_value(&self.summary).unwrap_or(Value::Null);
        let of_summary = summary.as_object().into_iter().flatten();
        let more = self.more.iter();
        of_summary
            // An infinite time is null in JSON.
            .map(|(name, value)| (name.clone(), value.as_f64().unwrap_or(f64::INFINITY)))
            .chain(more.map(|(name, value)| ((*name).to_owned(), *value)))
            .collect()
    }
}
