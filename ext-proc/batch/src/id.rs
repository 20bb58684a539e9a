//! Names of files, batches and workers: random, so that workers on several machines need not agree on a counter.

use rand::Rng as _;

/// Creates a name such as `batch_3f0c…`: the prefix and 24 random hexadecimal digits.
pub(crate) fn random_id(prefix: &str) -> String {
    let number: u128 = rand::rng().random();
    format!("{prefix}{:024x}", number >> 32)
}

/// Names one line of a batch, for the engine's log (`x-client-request-id`) and for the output (`id`).
pub(crate) fn request_id(batch: &str, number: i64) -> String {
    let batch = batch.strip_prefix("batch_").unwrap_or(batch);
    format!("batch_req_{batch}_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_keep_their_length() {
        let ids: Vec<String> = (0..100).map(|_| random_id("file-")).collect();
        assert!(ids.iter().all(|id| id.len() == 29), "{ids:?}");
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert_eq!(request_id("batch_ab", 7), "batch_req_ab_7");
    }
}
