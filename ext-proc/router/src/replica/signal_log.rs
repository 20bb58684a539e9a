//! Log of the sources that taught each quantity of a pool.

use core::time::Duration;

use strum::IntoEnumIterator as _;

use crate::constant::constants;
use crate::{Signals, Source, Time};

constants! {
    /// Time for which a better source keeps a worse one from teaching.
    RECENT: Duration = Duration::from_secs(60);
}

/// Times at which each source last taught a quantity, best first. [`Source::Presumed`] has no time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceLog([Option<Time>; Source::Presumed as usize]);

impl SourceLog {
    /// Registers that a source teaches, unless a better one did so lately. Returns whether it may. Times to first token teach
    /// beside counters: they show how times differ by prompt, and counters how long they are.
    pub(crate) fn teach(&mut self, source: Source, now: Time) -> bool {
        let is_excluded = match source {
            Source::Usage => false,
            Source::Counters | Source::FirstTokens => self.is_recent(Source::Usage, now),
            Source::Answers | Source::Presumed => {
                self.is_recent(Source::Usage, now) || self.is_recent(Source::Counters, now)
            }
        };
        if !is_excluded && let Some(at) = self.0.get_mut(source as usize) {
            *at = Some(now);
        }
        !is_excluded
    }

    /// Whether a source has taught lately.
    pub(crate) fn is_recent(&self, source: Source, now: Time) -> bool {
        let at = self.0.get(source as usize).copied().flatten();
        at.is_some_and(|at| now.since(at) < RECENT.get())
    }

    /// Whether the engines have ever told the quantity themselves.
    pub(crate) fn is_told(&self) -> bool {
        let [usage, counters, ..] = self.0;
        usage.is_some() || counters.is_some()
    }

    /// Whether any source has taught.
    pub(crate) fn is_taught(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// The best source that has taught within a minute of the last one.
    fn best(&self) -> Source {
        let latest = self.0.iter().flatten().max().copied();
        let is_named = |at: &Time| latest.is_some_and(|latest| latest.since(*at) < RECENT.get());
        let mut named = Source::iter().zip(&self.0);
        named
            .find(|(_, at)| at.as_ref().is_some_and(is_named))
            .map_or(Source::Presumed, |(source, _)| source)
    }
}

/// The sources of each quantity of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SignalLog {
    pub(crate) prompt_speed: SourceLog,
    pub(crate) decode_speed: SourceLog,
    pub(crate) token_length: SourceLog,
    pub(crate) cache_hits: SourceLog,
    pub(crate) answer_length: SourceLog,
}

impl SignalLog {
    /// The best source of each quantity.
    pub(crate) fn signals(&self) -> Signals {
        Signals {
            prompt_speed: self.prompt_speed.best(),
            decode_speed: self.decode_speed.best(),
            token_length: self.token_length.best(),
            cache_hits: self.cache_hits.best(),
            answer_length: self.answer_length.best(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    #[test]
    fn the_best_source_of_late_teaches_and_is_named() {
        let mut log = SourceLog::default();
        assert_eq!(log.best(), Source::Presumed);
        assert!(log.teach(Source::FirstTokens, at(1)));
        assert_eq!(log.best(), Source::FirstTokens);
        assert!(log.teach(Source::Usage, at(2)));
        assert!(!log.teach(Source::FirstTokens, at(3)));
        assert!(log.teach(Source::Usage, at(4)));
        assert_eq!(log.best(), Source::Usage);
        assert!(log.teach(Source::Counters, at(70)), "usage is old");
        assert_eq!(log.best(), Source::Counters);
    }
}
