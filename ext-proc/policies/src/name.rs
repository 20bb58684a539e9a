//! Names of policies: parsed once, so that a misspelt one is an error and never silently something else.

use isotherm_router::{Policy, PolicyFactory};
use itertools::Itertools;
use strum::{AsRefStr, Display, EnumString, IntoStaticStr, VariantArray};

use crate::{
    CacheAware, ConsistentHash, DualMap, LeastOutstanding, MinTtft, PowerOfTwo, Preble, PrefixTree,
    Random, RoundRobin,
};

/// Name of a policy.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    AsRefStr,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "snake_case", parse_err_ty = UnknownPolicy, parse_err_fn = unknown)]
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
    /// Replicas in turn.
    RoundRobin,
    /// A random replica.
    Random,
    /// The fewest outstanding requests.
    LeastOutstanding,
    /// The less loaded of two random replicas.
    PowerOfTwo,
}

impl PolicyName {
    /// All of them, in the order in which they are documented.
    pub const ALL: &[Self] = Self::VARIANTS;
}

impl From<PolicyName> for PolicyFactory {
    /// The policy of this name. Its router's seed feeds the policies that choose at random.
    fn from(name: PolicyName) -> Self {
        let build: fn(u64) -> Box<dyn Policy> = match name {
            PolicyName::Isotherm => return Self::default(),
            PolicyName::DualMap => |_| Box::new(DualMap::default()),
            PolicyName::PrefixTree => |_| Box::new(PrefixTree),
            PolicyName::CacheAware => |_| Box::new(CacheAware),
            PolicyName::Preble => |_| Box::new(Preble),
            PolicyName::MinTtft => |_| Box::new(MinTtft),
            PolicyName::ConsistentHash => |_| Box::new(ConsistentHash::default()),
            PolicyName::RoundRobin => |_| Box::new(RoundRobin::default()),
            PolicyName::Random => |seed| Box::new(Random::new(seed)),
            PolicyName::LeastOutstanding => |_| Box::new(LeastOutstanding),
            PolicyName::PowerOfTwo => |seed| Box::new(PowerOfTwo::new(seed)),
        };
        Self::new(<&str>::from(name), build)
    }
}

/// There is no policy of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy \"{0}\"; use one of: {names}", names = PolicyName::ALL.iter().join(", "))]
pub struct UnknownPolicy(String);

/// Characters of a wrong name that an error repeats.
const UNKNOWN_CHARS_MAX: usize = 64;

fn unknown(name: &str) -> UnknownPolicy {
    UnknownPolicy(name.chars().take(UNKNOWN_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_itself() {
        for name in PolicyName::ALL {
            assert_eq!(name.to_string().parse(), Ok(*name));
        }
    }

    #[test]
    fn a_policy_has_the_name_that_names_it() {
        for name in PolicyName::ALL {
            assert_eq!(PolicyFactory::from(*name).name(), name.as_ref());
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_all() {
        let error = "prefix-tree".parse::<PolicyName>().unwrap_err().to_string();
        assert!(error.contains("\"prefix-tree\""), "{error}");
        for name in PolicyName::ALL {
            assert!(error.contains(name.as_ref()), "{error}");
        }
    }
}
