//! Reports of an engine's counters, and what happened between the last two of them.
//!
//! Counters that run back show a restart. But an address may stand for several processes: workers of one server, or replicas
//! behind a virtual address. Their reports come in turn, and without start times each turn to a process that has done less
//! looks like a restart. Counters of a restarted process grow to where the old one was step by step. Counters of another
//! process *jump* there at once. Two jumps within a minute show several processes: then the reports tell nothing.

use core::time::Duration;

use crate::constant::constants;
use crate::engine_counters::CounterChange;
use crate::{EngineCounters, Time};

constants! {
    /// Longest time between two jumps that show several processes. Guards: two restarts that lie far apart are not taken for several
    /// processes.
    JUMPS_WITHIN: Duration = Duration::from_secs(60);
    /// Time without an alternation after which the reports count as those of one process again. Guards: an address that loses its other
    /// processes is believed again without a restart of the service.
    SEVERAL_FOR: Duration = Duration::from_secs(600);
}

/// Meaning of a report of counters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CounterEvent {
    /// Growth of each counter since the last report.
    Grown(EngineCounters),
    /// The process is a new one.
    Restarted,
    /// The reports turn out to be of several processes.
    SeveralFound,
}

/// The last reports of a replica's counters.
#[derive(Clone, Debug, Default)]
pub(crate) struct CounterHistory {
    /// On the heap, since few operations read them.
    reports: Option<Box<Reports>>,
}

#[derive(Clone, Copy, Debug)]
struct Reports {
    last: EngineCounters,
    /// Time when the probe of the last report was sent.
    at: Time,
    /// The reports between which counters ran back, while they may still jump forward again.
    fall: Option<Fall>,
    /// Time of the last jump.
    jumped: Option<Time>,
    /// Time of the last alternation between processes that are known to be several.
    several: Option<Time>,
}

/// Two reports between which counters ran back.
#[derive(Clone, Copy, Debug)]
struct Fall {
    from: EngineCounters,
    to: EngineCounters,
}

impl Fall {
    /// Whether no counter is below where it fell from.
    fn is_undone(&self, now: &EngineCounters) -> bool {
        matches!(now.since(&self.from), Some(CounterChange::Grown(_)))
    }

    /// Whether the step from `last` to `now` is greater than all growth between the fall and `last`.
    fn is_jump(&self, last: &EngineCounters, now: &EngineCounters) -> bool {
        now.work() - last.work() > last.work() - self.to.work()
    }
}

impl CounterHistory {
    /// Whether the reports are known to come from several processes.
    pub(crate) fn has_several(&self, now: Time) -> bool {
        let reports = self.reports.as_ref();
        reports.is_some_and(|reports| reports.has_several(now))
    }

    /// Takes a report in, and returns what it tells. The first report tells nothing, and neither does one that is older than the
    /// last or of an older process.
    pub(crate) fn reported(
        &mut self,
        counters: &EngineCounters,
        sent: Time,
    ) -> Option<CounterEvent> {
        let Some(reports) = self.reports.as_deref_mut() else {
            self.reports = Some(Box::new(Reports::first(counters, sent)));
            return None;
        };
        if sent < reports.at {
            return None;
        }
        let change = counters.since(&reports.last)?;
        if change == CounterChange::Restarted {
            *reports = Reports::first(counters, sent);
            return Some(CounterEvent::Restarted);
        }
        reports.compare(change, counters, sent)
    }
}

impl Reports {
    const fn first(counters: &EngineCounters, sent: Time) -> Self {
        Self {
            last: *counters,
            at: sent,
            fall: None,
            jumped: None,
            several: None,
        }
    }

    fn has_several(&self, now: Time) -> bool {
        self.several
            .is_some_and(|several| now.since(several) < SEVERAL_FOR.get())
    }

    fn compare(
        &mut self,
        change: CounterChange,
        counters: &EngineCounters,
        sent: Time,
    ) -> Option<CounterEvent> {
        let had_several = self.has_several(sent);
        let last = core::mem::replace(&mut self.last, *counters);
        self.at = sent;
        let has_run_back = change == CounterChange::RanBack;
        let undone = self.fall.take_if(|fall| fall.is_undone(counters));
        // No process runs back to where it has been before.
        let is_jump = undone.is_some_and(|fall| has_run_back || fall.is_jump(&last, counters));
        if is_jump {
            let before = self.jumped.replace(sent);
            let is_second = before.is_some_and(|before| sent.since(before) <= JUMPS_WITHIN.get());
            if had_several || is_second {
                self.several = Some(sent);
            }
        } else if has_run_back {
            // Of several falls, the first one is from the furthest.
            let from = self.fall.map_or(last, |fall| fall.from);
            self.fall = Some(Fall {
                from,
                to: *counters,
            });
            if had_several {
                self.several = Some(sent);
            }
        }
        match change {
            _ if had_several => None,
            _ if self.has_several(sent) => Some(CounterEvent::SeveralFound),
            _ if is_jump => None,
            CounterChange::Grown(grown) => Some(CounterEvent::Grown(grown)),
            CounterChange::RanBack | CounterChange::Restarted => Some(CounterEvent::Restarted),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(started_ms: Option<u64>, prompt_tokens: f64) -> EngineCounters {
        EngineCounters {
            started_ms,
            prompt_tokens: Some(prompt_tokens),
            ..EngineCounters::default()
        }
    }

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn tokens(event: Option<CounterEvent>) -> Option<f64> {
        match event? {
            CounterEvent::Grown(grown) => grown.prompt_tokens,
            CounterEvent::Restarted | CounterEvent::SeveralFound => None,
        }
    }

    /// Events of reports of these totals of prompt tokens, one report a second.
    fn events(totals: &[f64]) -> Vec<Option<CounterEvent>> {
        let mut history = CounterHistory::default();
        let reports = (0..).zip(totals);
        let report = |(s, total): (u64, &f64)| history.reported(&counters(None, *total), at(s));
        reports.map(report).collect()
    }

    fn count(events: &[Option<CounterEvent>], event: CounterEvent) -> usize {
        let same = events.iter().filter(|other| **other == Some(event));
        same.count()
    }

    #[test]
    fn late_reports_change_nothing() {
        let mut history = CounterHistory::default();
        let report = |total| counters(Some(1), total);
        assert_eq!(history.reported(&report(100.0), at(1)), None);
        assert_eq!(history.reported(&report(50.0), at(0)), None);
        let grown = history.reported(&report(170.0), at(2));
        assert_eq!(tokens(grown), Some(70.0));
    }

    #[test]
    fn two_processes_at_one_address_are_told_apart_by_their_start() {
        let mut history = CounterHistory::default();
        history.reported(&counters(Some(9_000), 100.0), at(1));
        let older = history.reported(&counters(Some(1_000), 500.0), at(2));
        assert_eq!(older, None);
        let grown = history.reported(&counters(Some(9_000), 130.0), at(3));
        assert_eq!(tokens(grown), Some(30.0));
        let newer = history.reported(&counters(Some(20_000), 900.0), at(4));
        assert_eq!(newer, Some(CounterEvent::Restarted));
    }

    #[test]
    fn counters_that_alternate_show_several_processes_after_two_jumps() {
        let events = events(&[
            9_000.0, 2_000.0, 9_100.0, 2_050.0, 9_200.0, 2_100.0, 9_300.0, 2_200.0,
        ]);
        assert_eq!(count(&events, CounterEvent::Restarted), 2);
        assert_eq!(events[4], Some(CounterEvent::SeveralFound));
        assert_eq!(events[5..], [None, None, None]);
        assert!(events.iter().all(|event| tokens(*event).is_none()));
    }

    #[test]
    fn three_processes_show_too_whatever_their_turns() {
        let totals = [9_000.0, 4_000.0, 1_000.0];
        let turns = [0, 1, 2, 0, 2, 1, 0, 1, 2, 0, 2, 0];
        let events = events(&turns.map(|turn: usize| totals[turn]));
        assert_eq!(count(&events, CounterEvent::SeveralFound), 1);
        assert_eq!(events[9..], [None, None, None]);
    }

    #[test]
    fn a_restarted_process_that_grows_past_the_old_one_is_one_process() {
        let mut totals = vec![3_000.0];
        for _ in 0..3 {
            totals.extend((1..20).map(|step| f64::from(step) * 200.0));
        }
        let events = events(&totals);
        assert_eq!(count(&events, CounterEvent::Restarted), 3);
        assert_eq!(count(&events, CounterEvent::SeveralFound), 0);
    }

    #[test]
    fn processes_of_which_each_has_done_more_of_something_show_too() {
        let mut history = CounterHistory::default();
        let report = |prompt_tokens, output_tokens| EngineCounters {
            generation_tokens: Some(output_tokens),
            ..counters(None, prompt_tokens)
        };
        let events: Vec<_> = (0..8)
            .map(|s| {
                let more = f64::from(u32::try_from(s).unwrap());
                let of_turn = if s % 2 == 0 {
                    report(9_000.0 + more, 100.0 + more)
                } else {
                    report(2_000.0 + more, 800.0 + more)
                };
                history.reported(&of_turn, at(s))
            })
            .collect();
        assert_eq!(count(&events, CounterEvent::SeveralFound), 1);
        assert!(history.has_several(at(8)));
    }

    #[test]
    fn counters_teach_again_when_nothing_has_alternated_for_long() {
        let mut history = CounterHistory::default();
        for (s, total) in [(0, 900.0), (1, 100.0), (2, 900.0), (3, 100.0), (4, 900.0)] {
            history.reported(&counters(None, total), at(s));
        }
        assert!(history.has_several(at(603)));
        assert!(!history.has_several(at(604)));
        let grown = history.reported(&counters(None, 1_000.0), at(604));
        assert_eq!(tokens(grown), Some(100.0));
    }
}
