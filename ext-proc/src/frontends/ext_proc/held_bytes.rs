//! The limit of the bytes of bodies that the service holds until it has decided, over all requests.

use std::sync::Arc;

use crate::metrics::Metrics;

/// The bytes that one request holds. Dropping it releases them.
#[derive(Debug)]
pub(super) struct HeldBytes {
    metrics: Arc<Metrics>,
    bytes: i64,
}

impl HeldBytes {
    pub(super) fn none(metrics: Arc<Metrics>) -> Self {
        Self { metrics, bytes: 0 }
    }

    /// Holds further bytes. Returns whether all requests together stay within `bytes_max`.
    pub(super) fn hold(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.bytes = self.bytes.saturating_add(bytes);
        let before = self.metrics.held_bytes.inc_by(bytes);
        usize::try_from(before.saturating_add(bytes)).is_ok_and(|all| all <= bytes_max)
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.metrics.held_bytes.dec_by(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn requests_share_a_limit_and_release_what_they_held() {
        let metrics = Arc::new(Metrics::register(&mut Registry::default()));
        let mut first = HeldBytes::none(Arc::clone(&metrics));
        let mut second = HeldBytes::none(Arc::clone(&metrics));
        assert!(first.hold(60, 100));
        assert!(!second.hold(60, 100));
        drop(first);
        assert!(second.hold(20, 100));
        drop(second);
        assert_eq!(metrics.held_bytes.get(), 0);
    }
}
