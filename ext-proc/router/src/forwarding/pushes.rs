//! Counts of recent dispatches to one peer, or of their tokens, as far back as a report may refer to.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Time;

/// Dispatches closer together than this form one group.
const GROUP: Duration = Duration::from_millis(1);
/// Groups kept at most; beyond it the two oldest merge.
const GROUPS_MAX: usize = 1024;

/// Recent dispatches to one target, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Pushes {
    groups: VecDeque<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Group {
    first: Time,
    last: Time,
    count: u32,
}

impl Pushes {
    pub(super) fn push(&mut self, now: Time) {
        self.add(now, 1);
    }

    /// Counts so many: requests, or their tokens.
    pub(super) fn add(&mut self, now: Time, count: u32) {
        if let Some(group) = self.groups.back_mut()
            && now < group.first.after(GROUP)
        {
            group.last = now;
            group.count = group.count.saturating_add(count);
            return;
        }
        if self.groups.len() >= GROUPS_MAX
            && let Some(oldest) = self.groups.pop_front()
            && let Some(next) = self.groups.front_mut()
        {
            next.first = oldest.first;
            next.count = next.count.saturating_add(oldest.count);
        }
        self.groups.push_back(Group {
            first: now,
            last: now,
            count,
        });
    }

    /// Number of dispatches at or after a time. A group that spans the time counts whole: too many is the safe side.
    pub(super) fn since(&self, time: Time) -> u32 {
        self.groups
            .iter()
            .rev()
            .take_while(|group| group.last >= time)
            .map(|group| group.count)
            .fold(0, u32::saturating_add)
    }

    pub(super) fn forget_before(&mut self, time: Time) {
        while self.groups.front().is_some_and(|group| group.last < time) {
            self.groups.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(ms))
    }

    #[test]
    fn counts_what_came_at_or_after_a_time() {
        let mut pushes = Pushes::default();
        for at in [1, 1, 5, 9] {
            pushes.push(ms(at));
        }
        assert_eq!(pushes.since(ms(0)), 4);
        assert_eq!(pushes.since(ms(5)), 2);
        assert_eq!(pushes.since(ms(10)), 0);
        pushes.forget_before(ms(5));
        assert_eq!(pushes.since(ms(0)), 2);
    }

    #[test]
    fn never_counts_too_few_however_many_there_are() {
        let mut pushes = Pushes::default();
        for at in 0..5_000 {
            pushes.push(ms(2 * at));
        }
        assert!(pushes.groups.len() <= GROUPS_MAX);
        assert_eq!(pushes.since(ms(0)), 5_000);
        assert_eq!(pushes.since(ms(9_990)), 5);
    }
}
