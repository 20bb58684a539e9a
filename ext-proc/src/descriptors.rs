//! Descriptors of open files: their limit, and how many of them probes may take.
//!
//! Each probed replica keeps a connection, and a service that has no descriptor left accepts no Envoy. So the service raises its soft
//! limit to the hard one at its start, and probes leave a reserve for listeners, files and everything else.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The least reserve: what a service opens at its start, and some Envoys.
const RESERVE_MIN: u64 = 64;
/// The reserve is the limit divided by this, if that is more.
const RESERVE_SHARE: u64 = 4;

/// Raises the soft limit to the hard one.
/// Fails when the system refuses that.
pub(crate) fn raise_limit() -> std::io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// The limit of descriptors after [`raise_limit`].
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// The descriptors of a limit that probes may take.
pub(crate) fn for_probes(limit: u64) -> u64 {
    let reserve = RESERVE_MIN.max(limit / RESERVE_SHARE);
    limit.saturating_sub(reserve).max(1)
}

/// The limit with which each of so many replicas keeps the connection of its probes.
pub(crate) fn needed(replicas: u64) -> u64 {
    let by_share = replicas * RESERVE_SHARE / (RESERVE_SHARE - 1) + 1;
    by_share.max(replicas + RESERVE_MIN)
}

/// Says what to do about a limit that is too small for so many replicas; `None` for one that is not.
pub(crate) fn advice(replicas: u64, limit: u64) -> Option<String> {
    (replicas > for_probes(limit)).then(|| {
        format!(
            "{replicas} replicas need about {} file descriptors, and the limit is {limit}: raise it (`LimitNOFILE` of systemd, \
             `ulimit -Hn` of a shell). Until then each probe opens a connection of its own",
            needed(replicas)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_leave_a_reserve_and_the_needed_limit_is_the_least_one_without_advice() {
        assert_eq!(for_probes(100), 36);
        assert_eq!(for_probes(300), 225);
        assert_eq!(for_probes(1_024), 768);
        assert_eq!(for_probes(10), 1);
        for replicas in [36, 64, 256, 1_000, 10_000] {
            let needed = needed(replicas);
            assert_eq!(advice(replicas, needed), None, "{replicas}");
            assert!(advice(replicas, needed - 2).is_some(), "{replicas}");
        }
        let advice = advice(1_000, 1_024).unwrap();
        assert!(
            advice.contains("1334") && advice.contains("1024"),
            "{advice}"
        );
    }
}
