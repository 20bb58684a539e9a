//! Requests that come and end, and probes.

use std::collections::BTreeSet;

use isotherm_policies::PolicyName;
use isotherm_router::{
    Choice, End, EngineCounters, Event, Load, PeerId, RejectReason, ReplicaId, Request, RequestId,
    Scope, ServedBy, Time,
};

use super::super::{request, serves_in_order};
use super::Naive;
use super::ops::Reach;
use super::ops::ReportedOutcome;
use super::ops::Server;
use super::peers::Since;
use super::replica::BREAKS;
use super::replica::Evidence;
use super::replica::InFlightRequest;
use super::replica::{SETTLE, STANDS_STILL};
use super::tiers::RequestTags;

impl Naive {
    pub(super) fn arrive(
        &mut self,
        blocks: &[u64],
        session: u64,
        subset: Option<&[usize]>,
        reach: &Reach,
        standing: &RequestTags,
    ) {
        self.tick();
        let mut request = request(self.next_request, session, blocks);
        self.next_request += 1;
        standing.apply(&mut request, self.now);
        request.scope = match reach {
            Reach::Home => Scope::Local,
            Reach::Forwarded => Scope::Forwarded,
            Reach::Regions(tried) => Scope::Regions {
                tried: tried.iter().copied().map(PeerId).collect(),
            },
        };
        let number = |which: &usize| ReplicaId(u32::try_from(*which).unwrap());
        request.subset = subset.map(|subset| subset.iter().map(number).collect());
        if let Reach::Regions(tried) = reach
            && let Some(last) = tried.last()
        {
            self.peers.came_back(PeerId(*last), self.now);
        }
        let foretold = self.router.explain(self.now, &request);
        let explained: BTreeSet<ReplicaId> =
            foretold.candidates.iter().map(|c| c.replica).collect();
        for replica in self.replicas.keys() {
            let eligible = self.is_eligible(&request, *replica);
            assert!(!eligible || explained.contains(replica));
        }
        // Replicas of the subset that do not exist yet, or drain, do not count: also not when their number is given out
        // later, or when they resume.
        let mut resolved = request.clone();
        resolved.subset = request.subset.as_deref().map(|subset| {
            let stays = |id: &&ReplicaId| self.replicas.get(id).is_some_and(|r| !r.draining);
            subset.iter().filter(stays).copied().collect()
        });
        // The limits of its tenant hold for a request that arrives, and not for one that comes back.
        let comes_back = matches!(&resolved.scope, Scope::Regions { tried } if !tried.is_empty());
        let mut since = Since {
            place: self.next_place(),
            arrived: self.now,
            entered: self.now,
            held: self.is_held(&resolved),
        };
        if let Scope::Regions { tried } = &resolved.scope
            && let Some(last) = tried.last()
            && let Some(left) = self.peers.takes_back(*last, &resolved)
        {
            since = Since {
                held: since.held,
                ..left
            };
        }
        let behind = |(_, other): &(Request, Since)| *other < since;
        let at = self.waiting.partition_point(behind);
        self.waiting.insert(at, (resolved, since));
        // An explanation does not know how long one that has come back has been on its way.
        let waits_matter = self.tells_times || !serves_in_order(self.policy());
        let is_known = since.arrived == self.now || !waits_matter;
        // Under `dual_map`, an arrival first assigns queued requests whose candidate has failed to another one.
        let moves_others = self.policy() == PolicyName::DualMap && self.waiting.len() > 1;
        // What is held may be released in the same event, before or after the arrival.
        let is_held = |(_, since): &(Request, Since)| since.held;
        let moves_others = moves_others || self.waiting.iter().any(is_held);
        let limit = RejectReason::TenantLimit;
        let is_exempt = |choice: &Choice| {
            comes_back && matches!(choice, Choice::Reject { reason } if *reason == limit)
        };
        let choice =
            Some(foretold.choice).filter(|choice| is_known && !moves_others && !is_exempt(choice));
        self.event_foretold(Event::Arrived(request), choice);
    }

    pub(super) fn finish_one(
        &mut self,
        which: usize,
        end: End,
        server: Server,
        told: ReportedOutcome,
    ) {
        let n = self.in_flight.len().max(1);
        if let Some(id) = self.in_flight.keys().nth(which % n).copied() {
            self.finish_this(id, end, server, told);
        }
    }

    pub(super) fn breaks(&mut self, which: usize) {
        let Some(replica) = self.replica(which) else {
            return;
        };
        for _ in 0..BREAKS {
            let subset = [replica.0 as usize];
            self.arrive(&[], 0, Some(&subset), &Reach::Home, &RequestTags::default());
            let at_it = |(_, flight): &(&RequestId, &InFlightRequest)| flight.replica == replica;
            let last = self.in_flight.iter().rfind(at_it).map(|(id, _)| *id);
            if let Some(id) = last {
                self.finish_this(id, End::Failed, Server::Unsaid, ReportedOutcome::default());
            }
        }
    }

    pub(super) fn finish_this(
        &mut self,
        id: RequestId,
        end: End,
        server: Server,
        told: ReportedOutcome,
    ) {
        let member = match server {
            Server::Member(which) => self.replica(which),
            Server::Unsaid | Server::Stranger => None,
        };
        let served = match (server, member) {
            (Server::Stranger, _) => ServedBy::UnknownHost,
            (_, Some(replica)) => ServedBy::Replica(replica),
            (_, None) => ServedBy::Unreported,
        };
        let chosen = self.in_flight[&id].replica;
        let failed = match end {
            End::Answered => Some(false),
            End::Refused | End::TimedOut | End::Unsent => None,
            End::Errored | End::Failed | End::Broke => Some(true),
        };
        let elsewhere = served != ServedBy::Unreported && served != ServedBy::Replica(chosen);
        let failed = match end {
            End::Refused if !elsewhere => self.refused(id),
            _ => failed,
        };
        let request = self.leave(id, if elsewhere { Some(true) } else { failed });
        if let Some(other) = member.filter(|_| elsewhere) {
            let failing = &mut self.replicas.get_mut(&other).unwrap().failing;
            if failing.left_out.is_none() {
                failing.count(self.now, failed);
            }
        }
        if let Some(served) = member
            && let Some(request) = request
            && let Some(replica) = self.replicas.get_mut(&served)
        {
            let blocks = request.fingerprint.blocks();
            replica.sent.extend(blocks.iter().map(|block| block.hash));
        }
        let cached = told.cached_percent;
        self.signal();
        self.event(Event::Finished {
            id,
            served_by: served,
            end,
            ttft_us: told.ttft_ms.map(|ms| 1_000 * ms),
            prompt_tokens: cached.map(|_| 640),
            cached_tokens: cached.map(|percent| 640 * percent / 100),
            completion_tokens: told.output_tokens,
        });
    }

    /// Verdict of a refused request: it counts while a peer refuses at most half as often.
    fn refused(&mut self, id: RequestId) -> Evidence {
        let flight = self.in_flight[&id].clone();
        let chosen = self.replicas.get_mut(&flight.replica)?;
        chosen.refused.push(true);
        let (refused, of) = chosen.refused_of_last();
        let is_alone = self.replicas.iter().any(|(peer, state)| {
            let (peer_refused, peer_of) = state.refused_of_last();
            let is_known = peer_of > 0 || state.outstanding > 0;
            *peer != flight.replica && is_known && 2 * peer_refused * of <= refused * peer_of
        });
        let blocks = flight.request.fingerprint.blocks();
        let session = flight.request.session.map_or(0, |session| session.0);
        let prompt = blocks.last().map_or(session, |block| block.hash)
            ^ u64::from(flight.request.fingerprint.total_bytes());
        let follows = flight.matched_bytes > 0 && flight.request.session.is_some();
        let key = if follows { session } else { prompt };
        let chosen = self.replicas.get_mut(&flight.replica)?;
        is_alone.then(|| chosen.failing.refuses(&flight, key))?
    }

    pub(super) fn abort(&mut self, which: usize, waiting: bool) {
        let id = if waiting {
            let n = self.waiting.len().max(1);
            self.waiting.get(which % n).map(|(request, _)| request.id)
        } else {
            let n = self.in_flight.len().max(1);
            self.in_flight.keys().nth(which % n).copied()
        };
        let Some(id) = id else {
            return;
        };
        self.waiting.retain(|(request, _)| request.id != id);
        self.answered.insert(id);
        self.leave(id, None);
        self.event(Event::Aborted(id));
    }

    pub(super) fn begin(&mut self, which: usize) {
        let n = self.in_flight.len().max(1);
        let Some((id, flight)) = self.in_flight.iter_mut().nth(which % n) else {
            return;
        };
        let id = *id;
        if !core::mem::replace(&mut flight.has_begun, true)
            && let Some(replica) = self.replicas.get_mut(&flight.replica)
        {
            replica.failing.began(flight);
            replica.begun(flight.at, self.now);
        }
        self.event(Event::Began(id));
    }

    pub(super) fn leave(&mut self, id: RequestId, failed: Evidence) -> Option<Request> {
        let flight = self.in_flight.remove(&id)?;
        if let Some(replica) = self.replicas.get_mut(&flight.replica) {
            replica.failing.ended(self.now, &flight, failed);
            if failed == Some(false) {
                replica.refused.push(false);
            }
            replica.outstanding -= 1;
            if !flight.has_begun {
                replica.begun(flight.at, self.now);
            }
        }
        Some(flight.request)
    }

    /// The engine of a replica reports its counters. What its process held and had queued is no rule of this model.
    pub(super) fn count(&mut self, replica: ReplicaId, tokens: u32, restarts: bool) {
        let state = self.replicas.get_mut(&replica).unwrap();
        let mut counters = state.count(tokens, restarts);
        if !self.tells_times {
            counters = EngineCounters {
                started_ms: counters.started_ms,
                prompt_tokens: counters.prompt_tokens,
                ..EngineCounters::default()
            };
        }
        self.event(Event::CountersReported {
            replica,
            counters,
            sent: self.now,
        });
    }

    pub(super) fn probe(
        &mut self,
        replica: ReplicaId,
        pending: u32,
        tells_all: bool,
        late_ms: u64,
        usage: f32,
    ) {
        let late = self.now.as_nanos().saturating_sub(late_ms * 1_000_000);
        let sent = Time::from_nanos(late);
        let flights = self.in_flight.values();
        let is_older = |flight: &&InFlightRequest| {
            flight.replica == replica && !flight.has_begun && flight.at < sent
        };
        let older = flights.filter(is_older).count();
        let state = self.replicas.get_mut(&replica).unwrap();
        let load = Load {
            pending,
            running: tells_all.then_some(state.outstanding.saturating_sub(pending)),
            kv_usage: tells_all.then_some(usage),
            kv_capacity_tokens: tells_all.then_some(2_000),
        };
        if state.probed().is_none_or(|last| sent >= last) {
            let since = state.page.filter(|(page, _)| *page == load);
            let since = since.map_or(sent, |(_, since)| since);
            state.page = Some((load, since));
            state.stands_still = sent.since(since) >= STANDS_STILL;
            state.without_metrics = None;
            state.usage = tells_all.then_some(usage);
            let after = |times: &[Time], from| times.iter().filter(|at| **at >= from).count();
            let is_ours = after(&state.siblings, sent.before(SETTLE)) == 0;
            let is_explained = is_ours && (1..=older).contains(&(pending as usize));
            state.shown = if is_explained { older } else { 0 };
            state.probe = Some((sent, pending));
            state.counted_from = sent;
            state.failed = false;
        }
        self.event(Event::Probed {
            replica,
            load,
            sent,
        });
    }
}
