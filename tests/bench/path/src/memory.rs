//! Growth of a variant's memory with unique prompts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::load::{Load, Target};
use super::running::RunningVariant;
use super::variant::Variant;

/// Time between two readings of the memory.
const STEP: Duration = Duration::from_secs(2);

/// The memory of one variant at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Variant.
    pub variant: Variant,
    /// Prompts of completed requests before.
    pub prompts: u64,
    /// Resident memory of the processes of each label.
    pub resident_bytes: BTreeMap<&'static str, u64>,
}

impl Memory {
    /// Reads the memory now.
    ///
    /// # Errors
    /// When a process has ended.
    pub fn of(running: &RunningVariant, prompts: u64) -> anyhow::Result<Self> {
        let mut resident_bytes = BTreeMap::new();
        for (label, process) in running.processes()? {
            *resident_bytes.entry(label).or_default() += process.resident_bytes()?;
        }
        Ok(Self {
            variant: running.variant,
            prompts,
            resident_bytes,
        })
    }

    /// Resident bytes of all processes.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.resident_bytes.values().sum::<u64>() as f64
    }
}

/// Sends `count` prompts, and reads the memory after each [`STEP`].
///
/// # Errors
/// When a process has ended, or no request completes.
pub async fn fill(
    running: &RunningVariant,
    target: &Target,
    clients: u16,
    count: u64,
) -> anyhow::Result<Vec<Memory>> {
    let mut prompts = 0;
    let mut readings = vec![Memory::of(running, prompts)?];
    while prompts < count {
        prompts += target.drive(Load::Closed(clients), STEP).await?.completed;
        readings.push(Memory::of(running, prompts)?);
    }
    Ok(readings)
}
