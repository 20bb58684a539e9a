//! Keeps the processors from sleeping while it is measured what a request costs.
//!
//! A request on its way wakes one process after the other, and a processor that has gone to sleep takes a while to wake, longest
//! in a virtual machine whose processors halt: the host must wake them. There the wake-up can be most of the cost of a
//! light request. `cyclictest` keeps processors awake for the same reason and in the same way.

use std::fs::File;
use std::io::Write as _;

use anyhow::Context as _;

/// Linux: bound on the wake-up latency of a CPU in microseconds, as long as the file is open.
const LATENCY_FILE: &str = "/dev/cpu_dma_latency";
const NONE_US: i32 = 0;

/// CPUs stay awake until this is dropped.
#[derive(Debug)]
pub struct AwakeGuard(#[expect(dead_code, reason = "its life is what counts")] File);

impl AwakeGuard {
    /// Keeps all processors of this machine awake.
    ///
    /// # Errors
    /// When this user may not, or this system cannot.
    pub fn keep() -> anyhow::Result<Self> {
        let open = File::options().write(true).open(LATENCY_FILE);
        let mut file = open.with_context(|| {
            format!("--awake keeps processors from sleeping through {LATENCY_FILE}: run it as root, on Linux, or without --awake")
        })?;
        file.write_all(&NONE_US.to_ne_bytes())
            .with_context(|| format!("{LATENCY_FILE} does not take a request"))?;
        Ok(Self(file))
    }
}
