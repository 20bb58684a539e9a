//! What a process has used, from the operating system: CPU time rather than wall time, since that is what is paid for
//! and what other work on the machine disturbs least.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use rustix::param::clock_ticks_per_second;

/// CPU time of all threads of a process so far, user and system, to a hundredth of a second.
///
/// # Errors
/// When it has ended, or on a system without `/proc`.
pub fn cpu(process: u32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = ticks(&text).with_context(|| format!("{path} is not understood"))?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / clock_ticks_per_second() as f64,
    ))
}

/// The sum of `utime` and `stime`, the 14th and 15th field. The second, a name in brackets, may hold anything, so
/// counting begins behind the last bracket.
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
    fn this_process_can_be_asked() {
        assert!(cpu(std::process::id()).is_ok());
    }
}
