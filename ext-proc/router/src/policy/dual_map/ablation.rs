//! Parts of `dual_map` switched off, to see what each is good for (`DualMap` 4.3, Figure 5). Always whole in the service.
#![cfg_attr(
    not(feature = "research"),
    expect(unreachable_pub, reason = "for experiments only")
)]

/// Which parts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ablation {
    /// How one of the two candidates is chosen.
    pub selection: CandidateRule,
    /// Whether waiting requests move to their other candidate.
    pub rebalances: bool,
}

/// How one of the two candidates is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(feature = "research"),
    expect(dead_code, reason = "the service knows only the whole policy")
)]
pub enum CandidateRule {
    /// The one that has more of the prompt; among equals the less loaded.
    CacheAffinity,
    /// The one with less to compute.
    LeastLoaded,
    /// The one that is expected to begin first.
    MinTtft,
    /// Affinity, until that one has more to compute than the time to the first token allows; then load.
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
