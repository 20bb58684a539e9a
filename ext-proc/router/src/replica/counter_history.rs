//! Reports of an engine's counters, and what happened between the last two of them.

use crate::engine_counters::CounterChange;
use crate::{EngineCounters, Time};

/// The last report of a replica's counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterHistory {
    /// Report, and the time when its probe was sent. On the heap, since few operations read it.
    last: Option<Box<(EngineCounters, Time)>>,
}

impl CounterHistory {
    /// Takes a report in, and returns how it differs from the last one. The first report returns nothing, and neither does
    /// one that is older than the last or of an older process.
    pub(crate) fn reported(
        &mut self,
        counters: &EngineCounters,
        sent: Time,
    ) -> Option<CounterChange> {
        let Some(last) = self.last.as_deref_mut() else {
            self.last = Some(Box::new((*counters, sent)));
            return None;
        };
        let (earlier, at) = *last;
        if sent < at {
            return None;
        }
        let change = counters.since(&earlier)?;
        *last = (*counters, sent);
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn counters(started_ms: u64, prompt_tokens: f64) -> EngineCounters {
        EngineCounters {
            started_ms: Some(started_ms),
            prompt_tokens: Some(prompt_tokens),
            ..EngineCounters::default()
        }
    }

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn tokens(change: Option<CounterChange>) -> Option<f64> {
        match change? {
            CounterChange::Grown(grown) => grown.prompt_tokens,
            CounterChange::Restarted => None,
        }
    }

    #[test]
    fn late_reports_change_nothing() {
        let mut history = CounterHistory::default();
        assert_eq!(history.reported(&counters(1, 100.0), at(1)), None);
        assert_eq!(history.reported(&counters(1, 50.0), at(0)), None);
        let grown = history.reported(&counters(1, 170.0), at(2));
        assert_eq!(tokens(grown), Some(70.0));
    }

    #[test]
    fn two_processes_at_one_address_are_told_apart() {
        let mut history = CounterHistory::default();
        history.reported(&counters(9_000, 100.0), at(1));
        assert_eq!(history.reported(&counters(1_000, 500.0), at(2)), None);
        let grown = history.reported(&counters(9_000, 130.0), at(3));
        assert_eq!(tokens(grown), Some(30.0));
        let newer = history.reported(&counters(20_000, 900.0), at(4));
        assert_eq!(newer, Some(CounterChange::Restarted));
    }
}
