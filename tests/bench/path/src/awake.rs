//! Keeps the CPUs from sleeping during a measurement.
//!
//! A request wakes one process after the other, and a sleeping CPU takes time to wake, most of all in a virtual machine whose
//! host must wake it. The wake-ups can cost more than a light request. `cyclictest` keeps CPUs awake in the same way.

use std::fs::File;
use std::io::Write as _;

use anyhow::Context as _;

/// Linux: bound on the wake-up latency of a CPU in microseconds, as long as the file is open.
const LATENCY_FILE: &str = "/dev/cpu_dma_latency";
const NONE_US: i32 = 0;

/// CPUs stay awake until this is dropped.
#[derive(Debug)]
pub struct AwakeGuard(#[expect(dead_code, reason = "an open file keeps the CPUs awake")] File);

impl AwakeGuard {
    /// Keeps all CPUs of this machine awake.
    ///
    /// # Errors
    /// When this user is not allowed to, or this system does not support it.
    pub fn keep() -> anyhow::Result<Self> {
        let open = File::options().write(true).open(LATENCY_FILE);
        let mut file = open.with_context(|| {
            format!("--awake keeps CPUs from sleeping through {LATENCY_FILE}: run it as root, on Linux, or without --awake")
        })?;
        file.write_all(&NONE_US.to_ne_bytes())
            .with_context(|| format!("{LATENCY_FILE} does not take a request"))?;
        Ok(Self(file))
    }
}
