//! A probe of a replica is applied here, and nowhere else: the ledger and the estimates over it take it in, one after the other.

use core::time::Duration;

use super::standing_page::StandingPage;
use super::{LinearModel, Replica, STREAMS_MIN};
use crate::{Load, Time};

impl Replica {
    /// Applies a good probe that was sent at `sent`: the load that it showed, or none if the replica answered it without metrics. Returns
    /// whether it is newer than the last one. A request occupies the replica for about `service`.
    pub(super) fn on_probe(
        &mut self,
        shown: Option<Load>,
        sent: Time,
        service: Duration,
        pool: LinearModel,
        now: Time,
    ) -> bool {
        // Probe replies overtake each other, and load reports belong to requests sent long ago.
        let sent = sent.min(now);
        if self.probe.sent.is_some_and(|last| sent < last) {
            return false;
        }
        let load = shown.map(|load| self.believed(load, sent, service));
        let own = self
            .ledger
            .on_probe(load.map_or(0, |load| load.pending), sent);
        self.others.on_probe(load.as_ref(), sent, own, service);
        self.others.refresh(&mut self.ledger, now);
        // Stuck prompts stand for the pending requests that a metrics page would show.
        self.probe.stuck = match load {
            None if self.work.streams >= STREAMS_MIN.get() => self.ledger.stuck(now),
            _ => 0,
        };
        if load.is_some() {
            self.age(pool, now);
        }
        let (pending, token_s) = (
            load.map_or(self.probe.stuck, |load| load.pending),
            self.token_s(),
        );
        self.work
            .backlog
            .on_probe(&self.ledger, pending, sent, token_s);
        (self.probe.sent, self.probe.has_failed) = (Some(sent), false);
        self.probe.is_without_metrics = load.is_none();
        if let Some(load) = load {
            self.show(load, now);
        }
        true
    }

    /// Keeps the load that a probe showed.
    fn show(&mut self, load: Load, now: Time) {
        let last = self.probe.shown;
        let memory = last.and_then(|last| last.kv_usage);
        self.signs.on_memory(memory, load.kv_usage, now);
        let known = last.and_then(|last| last.kv_capacity_tokens);
        self.probe.shown = Some(Load {
            kv_capacity_tokens: load.kv_capacity_tokens.or(known),
            ..load
        });
    }

    /// The load that is believed of a page.
    fn believed(&mut self, load: Load, sent: Time, service: Duration) -> Load {
        let is_explained = self.outstanding() > 0
            || self.others.has_shared_since(sent.before(service))
            || self.signs.has_sign_since(self.probe.page.since());
        if self.probe.page.stands_still(&load, sent, is_explained) {
            self.probe.full_at = Some(0);
            return StandingPage::believed(load);
        }
        // An engine that runs none is not full: the page stood still, or the engine was about to begin.
        let is_below = |full_at: &u32| *full_at > 0 && load.running.is_some_and(|n| n <= *full_at);
        self.probe.full_at = match load.pending {
            0 => self.probe.full_at.filter(is_below),
            _ => load.running,
        };
        load
    }
}
