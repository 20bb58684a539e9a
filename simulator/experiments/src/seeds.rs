//! Seeds of an experiment, as the command line names them.

use core::num::NonZeroU64;
use core::str::FromStr;

/// Most seeds in a range.
const SEEDS_MAX: u64 = 10_000;

/// Seeds of each case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// A number of seeds, from the first one on.
    Count(NonZeroU64),
    /// The seeds from the first number to the second one, both included.
    Range(u64, u64),
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is neither a number of seeds (3) nor a range of at most {SEEDS_MAX} (401-410)"
            )
        };
        let seeds = match text.split_once('-') {
            None => text.parse().ok().map(Self::Count),
            Some((from, to)) => {
                let range = from.parse::<u64>().ok().zip(to.parse::<u64>().ok());
                let is_valid = |(from, to): &(u64, u64)| {
                    to.checked_sub(*from).is_some_and(|more| more < SEEDS_MAX)
                };
                range
                    .filter(is_valid)
                    .map(|(from, to)| Self::Range(from, to))
            }
        };
        seeds.ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, Effort};

    #[test]
    fn seeds_are_a_number_or_a_range() {
        let seeds_of = |text: &str| {
            let effort = Effort {
                seeds: Some(text.parse().unwrap()),
                seed: Some(7),
                ..Effort::default()
            };
            Context::new(effort).seeds(5)
        };
        assert_eq!(seeds_of("2"), [7, 8]);
        assert_eq!(seeds_of("401-403"), [401, 402, 403]);
        assert_eq!(seeds_of("5-5"), [5]);
        for wrong in ["", "0", "3-", "-3", "5-4", "1-2-3", "a", "0-10000"] {
            assert!(wrong.parse::<Seeds>().is_err(), "{wrong}");
        }
    }
}
