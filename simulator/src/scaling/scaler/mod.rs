//! Scalers: strategies that say how many instances a deployment has in a region.
//!
//! - [`ReactiveScaler`]: the paper's baseline; [`ChironScaler`]: the other system that the paper compares
//! - [`LongTermScaler`]: the paper's forecast and program with its strategies LT-I, LT-U and LT-UA
//! - [`PlannerScaler`]: Isotherm's planning core
//! - [`FixedScaler`]: as many as at the start

mod chiron;
mod paced;
mod planned;
mod reactive;

pub use chiron::ChironScaler;
pub use paced::{Forecaster, Gap, LongTermRules, LongTermScaler, Strategy};
pub use planned::PlannerScaler;
pub use reactive::{ReactiveScaler, Thresholds};

use super::instances::Phase;

/// Step of the closed loop, s.
pub const STEP_S: f64 = 15.0;

/// State of a deployment in a region after a step, as a scaler sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Index of the deployment.
    pub deployment: usize,
    /// Index of the region.
    pub region: usize,
    /// Instances that serve.
    pub ready: usize,
    /// Instances that start.
    pub starting: usize,
    /// Instances with their identities.
    pub phases: Vec<(u64, Phase)>,
    /// Bounds of the number of instances.
    pub bounds: (usize, usize),
    /// Effective memory utilisation of the instances that serve.
    pub utilisation: f64,
    /// Requests in an instance, mean.
    pub in_flight: f64,
    /// Interactive requests that wait.
    pub waiting: f64,
    /// Requests a second of an instance that always has work.
    pub capacity_per_s: f64,
    /// Tokens in the KV pool of an instance.
    pub kv_tokens: f64,
    /// Interactive prompt tokens a second that the region's clients sent.
    pub input_tokens_per_s: f64,
    /// Non-interactive prompt tokens a second that the region's clients sent.
    pub batch_tokens_per_s: f64,
    /// Interactive requests that were served in the step.
    pub interactive: Demand,
    /// Non-interactive requests that were served in the step.
    pub batch: Demand,
}

/// Requests that were served in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    /// Requests, of the lengths of the profile.
    pub requests: f64,
    /// Time of one instance that they took, s.
    pub work_s: f64,
    /// Prompt tokens of the requests.
    pub input_tokens: f64,
    /// Tokens in KV pools, times the seconds for which they were there.
    pub kv_token_s: f64,
}

impl View {
    /// Instances that serve, now or soon.
    pub fn current(&self) -> usize {
        self.ready + self.starting
    }
}

/// A strategy.
pub trait Scaler {
    /// Sees every deployment in every region after a step, always in the same order; returns the number of instances of each,
    /// `None` for no change.
    fn desired(&mut self, now_s: f64, views: &[View]) -> Vec<Option<usize>>;
}

/// As many instances as at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixedScaler;

impl Scaler for FixedScaler {
    fn desired(&mut self, _: f64, views: &[View]) -> Vec<Option<usize>> {
        vec![None; views.len()]
    }
}
