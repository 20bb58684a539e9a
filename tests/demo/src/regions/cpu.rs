//! CPU use of this machine: a comparison of simulated GPUs is valid only while the CPUs keep up.

use std::fs;

/// CPU time of the machine at one moment, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CpuTimes {
    /// Total time, idle time included.
    total: u64,
    /// Time of all programs.
    busy: u64,
}

impl CpuTimes {
    /// The current counters; `None` on a system without `/proc`.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat`: `cpu user nice system idle iowait ...`.
    fn parse(stat: &str) -> Option<Self> {
        let fields = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks = fields.split_ascii_whitespace();
        // The first two fields include the fields after the eighth.
        let ticks: Vec<u64> = ticks
            .map_while(|field| field.parse().ok())
            .take(8)
            .collect();
        let idle: u64 = ticks.get(3..5)?.iter().sum();
        let total: u64 = ticks.iter().sum();
        let busy = total - idle;
        Some(Self { total, busy })
    }

    /// The busy share of the time since an earlier moment.
    pub(super) fn busy_share_since(self, earlier: Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total).max(1) as f64;
        self.busy.saturating_sub(earlier.busy) as f64 / total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_is_neither_idle_nor_waiting_is_busy() {
        let times = |total, busy| CpuTimes { total, busy };
        let stat = "cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1";
        assert_eq!(CpuTimes::parse(stat), Some(times(100, 20)));
        assert_eq!(CpuTimes::parse("cpu 1 2"), None);
        assert_eq!(times(200, 100).busy_share_since(times(100, 20)), 0.8);
        assert!(CpuTimes::now().is_none_or(|now| now.total > 0));
    }
}
