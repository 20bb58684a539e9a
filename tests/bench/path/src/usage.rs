//! CPU time of a process, from the operating system. Other work on the machine disturbs it less than wall time.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use rustix::param::clock_ticks_per_second;

/// CPU time of a process at one moment, user and system.
#[derive(Clone, Debug)]
pub struct Cpu {
    /// CPU time of the process, ended threads included, to a hundredth of a second.
    whole: Duration,
    /// CPU time of each running thread, in nanoseconds; empty where the kernel does not report it.
    threads: BTreeMap<u32, u64>,
}

impl Cpu {
    /// The CPU time of a process now.
    ///
    /// # Errors
    /// When the process has ended, or on a system without `/proc`.
    pub fn of(process: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/stat");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let ticks = ticks(&text).with_context(|| format!("{path} is not understood"))?;
        Ok(Self {
            whole: Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64),
            threads: threads(process),
        })
    }

    /// CPU time since an earlier moment: exact, unless a thread has ended in between.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Duration {
        let has_ended = |id| !self.threads.contains_key(id);
        if self.threads.is_empty() || earlier.threads.keys().any(has_ended) {
            return self.whole.saturating_sub(earlier.whole);
        }
        let spent = self.threads.iter().map(|(id, now)| {
            let before = earlier.threads.get(id).copied().unwrap_or(0);
            now.saturating_sub(before)
        });
        Duration::from_nanos(spent.sum())
    }
}

/// The first field of each thread's `schedstat`: nanoseconds on a processor.
fn threads(process: u32) -> BTreeMap<u32, u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
            Some((id, text.split_ascii_whitespace().next()?.parse().ok()?))
        })
        .collect()
}

/// The sum of `utime` and `stime`, the 14th and 15th field. The second field, a name in brackets, may contain brackets and
/// spaces, so counting begins after the last bracket.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "42 (a) (b c) S 1 42 42 0 -1 4194560 1 0 0 0 150 25 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(175));
        assert_eq!(ticks("42 (short) S 1"), None);
    }

    #[test]
    fn new_threads_count_and_an_ended_thread_leaves_the_coarse_figure() {
        let cpu = |ms, threads: &[(u32, u64)]| Cpu {
            whole: Duration::from_millis(ms),
            threads: threads.iter().copied().collect(),
        };
        let before = cpu(100, &[(1, 1_000), (2, 500)]);
        let more = cpu(110, &[(1, 4_000), (2, 500), (3, 20)]);
        assert_eq!(more.since(&before), Duration::from_nanos(3_020));
        let one_less = cpu(130, &[(1, 4_000)]);
        assert_eq!(one_less.since(&before), Duration::from_millis(30));
    }

    #[test]
    fn the_cpu_time_of_this_process_is_readable() {
        let before = Cpu::of(std::process::id()).unwrap();
        let after = Cpu::of(std::process::id()).unwrap();
        assert!(after.since(&before) < Duration::from_secs(10));
    }
}
