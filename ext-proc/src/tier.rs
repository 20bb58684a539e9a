//! Names of the workload tiers, as headers, metrics and the admin interface carry them.

use isotherm_router::Tier;

/// Every tier, the most urgent first.
pub(crate) const TIERS: [Tier; 3] = [
    Tier::InteractiveFast,
    Tier::InteractiveNormal,
    Tier::NonInteractive,
];

/// The name of a tier.
pub(crate) fn name(tier: Tier) -> &'static str {
    match tier {
        Tier::InteractiveFast => "interactive-fast",
        Tier::InteractiveNormal => "interactive-normal",
        Tier::NonInteractive => "non-interactive",
    }
}

/// The tier of a name that the filter wrote.
pub(crate) fn parse(value: &[u8]) -> Option<Tier> {
    let mut tiers = TIERS.into_iter();
    tiers.find(|tier| name(*tier).as_bytes() == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_those_of_the_filter() {
        for tier in TIERS {
            let written = isotherm_fingerprint::objectives::tier(name(tier).as_bytes());
            assert_eq!(written, Some(name(tier)));
            assert_eq!(parse(name(tier).as_bytes()), Some(tier));
        }
        assert_eq!(parse(b"flex"), None);
    }
}
