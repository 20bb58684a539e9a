//! Mean time to compute a prompt of a pool, as a decaying average.

use crate::Time;
use crate::constant::constants;

constants! {
    /// Time constant of the decay, in seconds.
    DECAY_S: f64 = 10.0;
}

/// Decaying sums of prompts and of their work.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeanWork {
    prompts: f64,
    work_s: f64,
    at: Time,
}

impl MeanWork {
    /// Registers a prompt that takes `work_s` seconds to compute.
    pub(crate) fn add(&mut self, work_s: f64, now: Time) {
        let fade = (-now.since(self.at).as_secs_f64() / DECAY_S.get()).exp();
        self.prompts = self.prompts * fade + 1.0;
        self.work_s = self.work_s * fade + work_s;
        self.at = self.at.max(now);
    }

    /// Mean work of a prompt, in seconds; zero without prompts.
    pub(crate) fn mean_s(&self) -> f64 {
        if self.prompts > 0.0 {
            self.work_s / self.prompts
        } else {
            0.0
        }
    }
}
