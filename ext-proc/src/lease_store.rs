//! Parts that all stores of leases share: their error, and the records that a list has found.

use isotherm_regions::{RegionEntry, StoreVersion, StoredEntry};

/// Why a store does not answer, or a record is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct StoreError(pub(crate) String);

/// The records of a store.
#[derive(Debug, Default)]
pub(crate) struct StoredEntries {
    pub(crate) entries: Vec<StoredEntry>,
    /// Why the first record that counts for nothing is ignored.
    pub(crate) ignored: Option<StoreError>,
}

impl StoredEntries {
    /// Adds a record from its JSON, unless it is none or not the record of the region that its key names.
    pub(crate) fn add(&mut self, text: &[u8], key: &str, prefix: &str, version: StoreVersion) {
        match parse(text, key, prefix) {
            Ok(entry) => self.entries.push(StoredEntry { entry, version }),
            Err(error) => {
                self.ignored.get_or_insert(error);
            }
        }
    }
}

fn parse(text: &[u8], key: &str, prefix: &str) -> Result<RegionEntry, StoreError> {
    let error = |error: &dyn core::fmt::Display| StoreError(format!("{key}: {error}"));
    let entry: RegionEntry = serde_json::from_slice(text).map_err(|failed| error(&failed))?;
    if key.strip_prefix(prefix) == Some(&*entry.region) {
        Ok(entry)
    } else {
        Err(error(&format_args!("the record of {}", entry.region)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_none_is_named_and_hides_no_other() {
        let mut listing = StoredEntries::default();
        for (key, text) in [("regions/us", "{}"), ("regions/eu", "no record")] {
            listing.add(text.as_bytes(), key, "regions/", StoreVersion("1".into()));
        }
        assert!(listing.entries.is_empty());
        let ignored = listing.ignored.unwrap().to_string();
        assert!(
            ignored.starts_with("regions/us: missing field"),
            "{ignored}"
        );
    }
}
