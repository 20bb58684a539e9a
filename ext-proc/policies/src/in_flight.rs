//! Sums over the requests of this service that each candidate has in flight, for rivals that keep such books.
//!
//! A rival's own router counts as it dispatches and as responses begin and end. These sums are made anew for each decision, from the
//! requests that the pool has in flight, and so are the same without books of their own.

use isotherm_router::{ReplicaIndex, Request, View};

/// Sums over the requests in flight on one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct InFlightSums {
    /// Number of requests.
    pub(super) requests: f64,
    /// Prompt tokens of all requests.
    pub(super) prompt_tokens: f64,
    /// Work of the prompts whose response has not begun.
    pub(super) uncomputed: PrefillWork,
}

/// Work of a prompt: its uncached tokens, and the pairs of such a token and one that it attends to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct PrefillWork {
    pub(super) tokens: f64,
    pub(super) pairs: f64,
}

impl PrefillWork {
    /// Work of the last `uncached` tokens of a prompt.
    pub(super) fn of(prompt_tokens: f64, uncached: f64) -> Self {
        Self {
            tokens: uncached,
            pairs: uncached * (prompt_tokens - uncached / 2.0),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens + other.tokens,
            pairs: self.pairs + other.pairs,
        }
    }
}

/// Sums of every candidate, in their order.
#[derive(Clone, Debug)]
pub(super) struct CandidateSums(Vec<(ReplicaIndex, InFlightSums)>);

impl CandidateSums {
    pub(super) fn of_candidates(view: &View<'_>) -> Self {
        let empty = |replica| {
            let requests = f64::from(view.rank(replica).requests());
            let sums = InFlightSums {
                requests,
                ..InFlightSums::default()
            };
            (replica, sums)
        };
        let mut all = Self(view.candidates().iter().map(empty).collect());
        for request in view.in_flight() {
            let Some(sums) = all.get_mut(request.replica) else {
                continue;
            };
            let prompt_tokens = f64::from(request.prompt_tokens);
            sums.prompt_tokens += prompt_tokens;
            if !request.has_begun {
                let uncached = request.uncached_tokens.min(prompt_tokens);
                let work = PrefillWork::of(prompt_tokens, uncached);
                sums.uncomputed = sums.uncomputed.plus(work);
            }
        }
        all
    }

    /// Sums of a replica; those of an idle one if it is no candidate.
    pub(super) fn get(&self, replica: ReplicaIndex) -> InFlightSums {
        let place = self.0.binary_search_by_key(&replica, |(one, _)| *one);
        let sums = place.ok().and_then(|place| self.0.get(place));
        sums.map(|(_, sums)| *sums).unwrap_or_default()
    }

    fn get_mut(&mut self, replica: ReplicaIndex) -> Option<&mut InFlightSums> {
        let place = self.0.binary_search_by_key(&replica, |(one, _)| *one);
        let sums = place.ok().and_then(|place| self.0.get_mut(place));
        sums.map(|(_, sums)| sums)
    }
}

/// Work of a request where so many of its tokens are uncached.
pub(super) fn work_of(request: &Request, uncached: f64) -> PrefillWork {
    PrefillWork::of(f64::from(request.prompt_tokens), uncached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tokens_of_a_prompt_attend_to_all_before_them() {
        let whole = PrefillWork::of(100.0, 100.0);
        let (first, last) = (PrefillWork::of(60.0, 60.0), PrefillWork::of(100.0, 40.0));
        assert_eq!(whole, first.plus(last));
    }
}
