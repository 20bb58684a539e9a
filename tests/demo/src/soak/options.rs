//! The options of `cargo xtask soak`.

use std::time::Duration;

/// Longest run; every request leaves a record in memory.
const MINUTES_MAX: f64 = 240.0;

/// Minutes and seed of a run.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SoakOptions {
    /// Minutes of load
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    pub minutes: f64,
    /// Seed of the faults and of the requests
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl SoakOptions {
    /// Time of the load.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.minutes * 60.0)
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (1.0..=MINUTES_MAX).contains(&minutes) => Ok(minutes),
        _ => Err(format!("give a number between 1 and {MINUTES_MAX}")),
    }
}
