//! Parts that all stores of leases share: their error, and the text of a record.

use isotherm_regions::RegionEntry;

/// Why a store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(pub(crate) String);

/// Reads a record from its JSON; `None`, with a log line, if it is none or is not the record of the region that its key names.
pub(crate) fn parse_entry(text: &[u8], key: &str, prefix: &str) -> Option<RegionEntry> {
    let entry: RegionEntry = match serde_json::from_slice(text) {
        Ok(entry) => entry,
        Err(error) => {
            tracing::warn!(key, %error, "the store has an unreadable record, which is ignored");
            return None;
        }
    };
    if key.strip_prefix(prefix) != Some(entry.region.as_str()) {
        let region = entry.region.as_str();
        tracing::warn!(
            key,
            region,
            "the store has a record under the name of another region, which is ignored"
        );
        return None;
    }
    Some(entry)
}
