//! Names of policies: parsed once, so that a misspelt one is an error and never silently something else.

use core::fmt;
use core::str::FromStr;

/// Name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyName {
    /// The least expected cost to all, chosen as late as possible.
    Isotherm,
    /// The longest cached prefix (SkyLB).
    PrefixTree,
    /// The longest cached prefix while load is in balance (SGLang).
    CacheAware,
    /// The longest cached prefix if it is most of the prompt, else the least work (Preble).
    Preble,
    /// The lowest estimated time to the first token (Mooncake).
    MinTtft,
    /// Ring hash on the session key (SkyLB-CH).
    ConsistentHash,
    /// The better of two candidates that the prefix names (DualMap).
    DualMap,
    /// In turn.
    RoundRobin,
    /// By lot.
    Random,
    /// The fewest outstanding requests.
    LeastOutstanding,
    /// The less loaded of two drawn by lot.
    PowerOfTwo,
}

impl PolicyName {
    /// All of them, in the order in which they are documented.
    pub const ALL: [Self; 11] = [
        Self::Isotherm,
        Self::PrefixTree,
        Self::CacheAware,
        Self::Preble,
        Self::MinTtft,
        Self::ConsistentHash,
        Self::DualMap,
        Self::RoundRobin,
        Self::Random,
        Self::LeastOutstanding,
        Self::PowerOfTwo,
    ];

    /// Name in configurations and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Isotherm => "isotherm",
            Self::PrefixTree => "prefix_tree",
            Self::CacheAware => "cache_aware",
            Self::Preble => "preble",
            Self::MinTtft => "min_ttft",
            Self::ConsistentHash => "consistent_hash",
            Self::DualMap => "dual_map",
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::LeastOutstanding => "least_outstanding",
            Self::PowerOfTwo => "power_of_two",
        }
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| UnknownPolicy(text.chars().take(UNKNOWN_CHARS_MAX).collect()))
    }
}

/// Characters of a wrong name that an error repeats.
const UNKNOWN_CHARS_MAX: usize = 64;

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no policy \"{}\"; use one of: ", self.0)?;
        for (i, name) in PolicyName::ALL.into_iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_itself() {
        for name in PolicyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_all() {
        let error = "prefix-tree".parse::<PolicyName>().unwrap_err().to_string();
        assert!(error.contains("\"prefix-tree\""), "{error}");
        for name in PolicyName::ALL {
            assert!(error.contains(name.as_str()), "{error}");
        }
    }
}
