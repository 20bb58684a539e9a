//! Ablations of `dual_map` for experiments (`DualMap` 4.3, Figure 5). The service has the whole policy.

/// The parts of the policy that are switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ablation {
    /// The rule that chooses one of the two candidates.
    pub selection: CandidateRule,
    /// Whether queued requests move to their other candidate.
    pub rebalances: bool,
}

/// A rule that chooses one of two candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CandidateRule {
    /// The longer match; among equals the lower load.
    CacheAffinity,
    /// The lower queued prefill.
    LeastLoaded,
    /// The lower estimated time to first token.
    MinTtft,
    /// The longer match, until its queued prefill exceeds the SLO; then the lower queued prefill.
    SloAware,
}

impl Default for Ablation {
    fn default() -> Self {
        Self {
            selection: CandidateRule::SloAware,
            rebalances: true,
        }
    }
}
