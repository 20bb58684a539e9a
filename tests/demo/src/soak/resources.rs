//! Memory and file descriptors of the services and Envoys, which must stay flat in each process that survives.

use std::collections::BTreeMap;
use std::time::Duration;

use isotherm_harness::process::Process;
use serde::Serialize;

use super::violation::{Invariant, Violation};

/// Growth of a process that survives, as a factor.
const GROWTH_MAX: f64 = 1.5;
/// Growth that every process may have: caches that fill, connections that idle.
const BYTES_FREE: u64 = 48 << 20;
const FILES_FREE: u64 = 48;

/// The memory and file descriptors of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Usage {
    pub(super) resident_bytes: u64,
    pub(super) open_files: u64,
}

/// The first and the last usage of each process.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources(BTreeMap<(String, u32), [Usage; 2]>);

/// The growth of a process that survived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Growth {
    pub(super) process: String,
    pub(super) first: Usage,
    pub(super) last: Usage,
}

impl Resources {
    /// Reads what a process uses now.
    pub(super) fn read(&mut self, name: &str, process: &Process) -> anyhow::Result<()> {
        let usage = Usage {
            resident_bytes: process.resident_bytes()?,
            open_files: u64::try_from(process.open_files()?)?,
        };
        let key = (name.to_owned(), process.id());
        let usages = self.0.entry(key).or_insert([usage; 2]);
        usages[1] = usage;
        Ok(())
    }

    /// The growth of the processes that run at the end: of those with these names and ids.
    pub(super) fn growth(&self, running: &[(String, u32)]) -> Vec<Growth> {
        let growth = |key: &(String, u32)| {
            let [first, last] = *self.0.get(key)?;
            Some(Growth {
                process: key.0.clone(),
                first,
                last,
            })
        };
        running.iter().filter_map(growth).collect()
    }
}

impl Growth {
    /// Checks that the process did not grow.
    pub(super) fn check(&self, now: Duration) -> Option<Violation> {
        let Self { first, last, .. } = self;
        let is_flat = is_flat(first.resident_bytes, last.resident_bytes, BYTES_FREE)
            && is_flat(first.open_files, last.open_files, FILES_FREE);
        (!is_flat).then(|| Violation {
            invariant: Invariant::Flat,
            at: now,
            what: format!("{} grew from {first:?} to {last:?}", self.process),
        })
    }
}

fn is_flat(first: u64, last: u64, free: u64) -> bool {
    last as f64 <= first as f64 * GROWTH_MAX + free as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_doubles_has_grown() {
        let growth = |last| Growth {
            process: "service 0".into(),
            first: Usage {
                resident_bytes: 1 << 30,
                open_files: 1_000,
            },
            last,
        };
        let usage = |resident_bytes, open_files| Usage {
            resident_bytes,
            open_files,
        };
        let is_violation = |last| growth(last).check(Duration::ZERO).is_some();
        assert!(!is_violation(usage(3 << 29, 1_500)));
        assert!(is_violation(usage(2 << 30, 1_000)));
        assert!(is_violation(usage(1 << 30, 2_000)));
    }
}
