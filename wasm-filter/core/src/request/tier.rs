//! The workload tiers.

/// Every tier, most urgent first.
const TIERS: [&str; 3] = ["interactive-fast", "interactive-normal", "non-interactive"];

/// The tier of this name, in any case and with `_` or `-`; `None` for an unknown name.
pub(super) fn canonical(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    TIERS.into_iter().find(|tier| *tier == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_tiers_are_dropped() {
        assert_eq!(canonical("Interactive_Fast"), Some("interactive-fast"));
        assert_eq!(canonical("non-interactive"), Some("non-interactive"));
        assert_eq!(canonical("urgent"), None);
    }
}
