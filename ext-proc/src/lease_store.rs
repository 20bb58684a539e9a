//! Parts that all stores of leases share: their error, and the text of a record.

use isotherm_regions::RegionEntry;

/// Why a store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(pub(crate) String);

/// Reads a record from its JSON; `None`, with a log line, if it is none.
pub(crate) fn parse_entry(text: &[u8], key: &str) -> Option<RegionEntry> {
    match serde_json::from_slice(text) {
        Ok(entry) => Some(entry),
        Err(error) => {
            tracing::warn!(key, %error, "the store has an unreadable record, which is ignored");
            None
        }
    }
}
