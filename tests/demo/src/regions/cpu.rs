//! CPU use of this machine: a comparison of simulated GPUs is valid only while the real CPUs keep up.

use std::fs;

/// CPU time at one moment, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTimes {
    /// Total time, idle time included.
    all: u64,
    /// Time of all programs.
    busy: u64,
    /// Time of this process and its children: Envoys, services, replicas, clients.
    own: u64,
}

/// Shares of all CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuShares {
    /// Spent by any program.
    pub(super) machine: f64,
    /// Spent by this process and its children.
    pub(super) own: f64,
}

impl CpuTimes {
    /// The current counters; `None` on a system without `/proc`.
    pub(super) fn now() -> Option<Self> {
        let (all, busy) = whole(&fs::read_to_string("/proc/stat").ok()?)?;
        let this = std::process::id();
        let own = fs::read_dir("/proc")
            .ok()?
            .filter_map(|entry| {
                let process: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
                let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
                let (parent, ticks) = one(&stat)?;
                (process == this || parent == this).then_some(ticks)
            })
            .sum();
        Some(Self { all, busy, own })
    }

    /// Shares of the time since an earlier moment.
    pub(super) fn since(self, earlier: Self) -> CpuShares {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        CpuShares {
            machine: self.busy.saturating_sub(earlier.busy) as f64 / all,
            own: self.own.saturating_sub(earlier.own) as f64 / all,
        }
    }
}

/// All and busy ticks from the first line of `/proc/stat`: `cpu user nice system idle iowait ...`.
fn whole(stat: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_ascii_whitespace()
        .map_while(|field| field.parse().ok())
        .take(8) // what comes behind is counted in the first two already
        .collect();
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    let all: u64 = ticks.iter().sum();
    Some((all, all - idle))
}

/// Parent and ticks from `/proc/PID/stat`. The second field, a name in brackets, may hold anything, so counting begins
/// behind the last bracket.
fn one(stat: &str) -> Option<(u32, u64)> {
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((u32::try_from(number(1)?).ok()?, number(11)? + number(12)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_idle_nor_waiting_is_busy() {
        assert_eq!(
            whole("cpu  10 0 10 70 10 0 0 0 5 0\ncpu0 1"),
            Some((100, 20))
        );
        assert_eq!(whole("cpu 1 2"), None);
        let then = CpuTimes {
            all: 100,
            busy: 20,
            own: 5,
        };
        let now = CpuTimes {
            all: 200,
            busy: 100,
            own: 55,
        };
        let busy = now.since(then);
        assert!((busy.machine - 0.8).abs() < 1e-9 && (busy.own - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_process_is_known_by_its_parent() {
        let stat = "42 (a) (b c) S 7 42 42 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0 5 6 7";
        assert_eq!(one(stat), Some((7, 175)));
        assert!(CpuTimes::now().is_none_or(|now| now.all > 0));
    }
}
