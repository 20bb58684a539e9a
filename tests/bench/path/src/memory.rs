//! Growth of a variant's memory with unique prompts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::closed::drive;
use super::prompts::Prompts;
use super::running::RunningVariant;
use super::variant::Variant;
use super::workload::Workload;

/// Time between two readings of the memory.
const STEP: Duration = Duration::from_secs(2);

/// The memory of one variant at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Variant.
    pub variant: Variant,
    /// Prompts that it has seen in measured windows; most of them unlike any other.
    pub prompts: u64,
    /// Resident memory of each process.
    pub resident_bytes: BTreeMap<&'static str, u64>,
}

impl Memory {
    /// Resident bytes of all processes.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.resident_bytes.values().sum::<u64>() as f64
    }
}

/// The memory now.
///
/// # Errors
/// When a process has ended.
pub fn look(running: &RunningVariant, prompts: u64) -> anyhow::Result<Memory> {
    let resident = running.processes()?.into_iter();
    Ok(Memory {
        variant: running.variant,
        prompts,
        resident_bytes: resident
            .map(|(label, process)| Ok((label, process.resident_bytes()?)))
            .collect::<anyhow::Result<_>>()?,
    })
}

/// Sends so many prompts, and looks at the memory again and again.
///
/// # Errors
/// When a process has ended, or nothing is answered.
pub async fn fill(
    running: &RunningVariant,
    workload: &Workload,
    clients: u16,
    count: u64,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Vec<Memory>> {
    let mut seen = 0;
    let mut looks = vec![look(running, seen)?];
    while seen < count {
        seen += drive(running.address, workload, clients, STEP, prompts)
            .await?
            .good;
        looks.push(look(running, seen)?);
    }
    Ok(looks)
}
