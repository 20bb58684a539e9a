//! Quarantine of prompts on which replicas broke.
//!
//! A prompt that crashes the engine that reads it would take one replica after another, because its client tries again. So
//! the table counts, for each prompt, the distinct replicas that broke on it. The second one puts the prompt into quarantine:
//! for a while no replica gets it. An answer clears the prompt. A prompt that breaks another replica after its quarantine
//! returns to it at once.
//!
//! The table does not put replicas into quarantine: they are the victims. It cannot tell a prompt that breaks a replica from
//! one that ran beside it, so a prompt that was beside it on both replicas shares its fate for the time.
//! `docs/decisions/0111-quarantine.md` has what was rejected.
//!
//! A client that varies its prompt would break two replicas with each. So the table also counts the prompts of each client on which a
//! replica broke. From the first one on, Envoy does not retry the client's requests. From the second one on, they go to the last
//! replica that broke, for the quarantine period.

use core::time::Duration;
use std::collections::BTreeMap;

use isotherm_fingerprint::Fingerprint;

use crate::in_flight::InFlightRequest;
use crate::index::Owner;
use crate::{End, ReplicaId, Request, ServedBy, SessionKey, Time};

/// Prompts that the table holds, at most; the oldest one leaves first.
const SUSPECTS_MAX: usize = 4_096;
/// Quarantine periods after which a prompt that broke no further replica is forgotten.
const PERIODS_REMEMBERED: u32 = 4;

/// Distinguishes the keys of sessions from digests of prompts.
const SESSION_MARK: u64 = 0x9e37_79b9_7f4a_7c15;

/// The key of a prompt in the table: its digest. Prompts without a fingerprint share the key of their session, since nothing
/// tells them apart.
pub(crate) fn key_of(fingerprint: &Fingerprint, session: Option<SessionKey>) -> Option<u64> {
    match fingerprint.digest() {
        0 => session.map(|session| session.0 ^ SESSION_MARK),
        digest => Some(digest),
    }
}

/// The key of a client: its tenant, or the session of a request of the common tenant.
fn client_of(owner: Owner, session: Option<SessionKey>) -> Option<u64> {
    match owner {
        Owner::COMMON => session.map(|session| session.0),
        of_tenant => Some(of_tenant.hash()),
    }
}

/// The part of a prompt in the end of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PromptVerdict {
    /// The replica is to blame, or the request has ended well.
    Innocent,
    /// The prompt breaks replicas.
    Guilty,
    /// The prompt with this key breaks replicas, and came into quarantine now.
    Quarantined(u64),
}

/// Prompts on which a replica broke, and their clients.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    suspects: BTreeMap<u64, Suspect>,
    clients: BTreeMap<u64, SuspectClient>,
}

/// A client on whose prompts replicas broke.
#[derive(Clone, Copy, Debug)]
struct SuspectClient {
    /// Prompts on which a replica broke.
    prompts: u32,
    /// The last replica that broke.
    replica: ReplicaId,
    broke_at: Time,
}

/// Restriction of a client on whose prompts replicas broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restriction {
    /// Envoy does not retry the client's requests.
    WithoutRetry,
    /// The client's requests go to one replica alone.
    To(ReplicaId),
}

/// A prompt on which a replica broke.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    /// The first replica that broke; `None` for a host that the router does not know.
    first: Option<ReplicaId>,
    /// The time of the last break.
    broke_at: Time,
    /// Whether a second replica broke.
    is_confirmed: bool,
}

impl Quarantine {
    /// Remaining quarantine of a request's prompt; `None` if a replica may get the prompt.
    pub(crate) fn rest_of(
        &self,
        request: &Request,
        period: Duration,
        now: Time,
    ) -> Option<Duration> {
        if self.suspects.is_empty() {
            return None;
        }
        self.remaining(key_of(&request.fingerprint, request.session)?, period, now)
    }

    /// Restriction of the client of a request, if replicas broke on several of its prompts.
    #[inline]
    pub(crate) fn restriction_of(
        &self,
        request: &Request,
        period: Duration,
        now: Time,
    ) -> Option<Restriction> {
        if self.suspects.is_empty() {
            return None;
        }
        let client = client_of(Owner::of(request.tenant), request.session)?;
        let suspect = self.clients.get(&client)?;
        let holds = now < suspect.broke_at.after(period);
        holds.then_some(match suspect.prompts {
            0 | 1 => Restriction::WithoutRetry,
            _ => Restriction::To(suspect.replica),
        })
    }

    /// Learns from the end of a request whether its prompt breaks replicas.
    pub(crate) fn on_end(
        &mut self,
        flight: &InFlightRequest,
        served_by: ServedBy,
        end: End,
        period: Duration,
        now: Time,
    ) -> PromptVerdict {
        let key = || key_of(&flight.request.fingerprint, flight.request.session);
        if end == End::Broke && !period.is_zero() {
            let judge = |key| self.on_break(flight, served_by, key, period, now);
            return key().map_or(PromptVerdict::Innocent, judge);
        }
        if end == End::Answered
            && !self.suspects.is_empty()
            && let Some(key) = key()
        {
            self.suspects.remove(&key);
        }
        PromptVerdict::Innocent
    }

    /// Counts the replicas that broke on a request. Envoy retries a request once, and reports its last replica.
    #[cold]
    fn on_break(
        &mut self,
        flight: &InFlightRequest,
        served_by: ServedBy,
        key: u64,
        period: Duration,
        now: Time,
    ) -> PromptVerdict {
        let was_quarantined = self.remaining(key, period, now).is_some();
        let chosen = flight.claim.replica;
        let last = served_by.server(chosen);
        if !self.suspects.contains_key(&key)
            && let Some(client) = client_of(flight.claim.recorded.owner, flight.request.session)
        {
            self.add_client(client, last.unwrap_or(chosen), period, now);
        }
        let mut is_quarantined = self.add_break(key, Some(chosen), period, now);
        if served_by != ServedBy::Unreported {
            is_quarantined |= self.add_break(key, last, period, now);
        }
        match is_quarantined {
            true if was_quarantined => PromptVerdict::Guilty,
            true => PromptVerdict::Quarantined(key),
            false => PromptVerdict::Innocent,
        }
    }

    /// Remaining time of a prompt's quarantine; `None` if a replica may get the prompt.
    fn remaining(&self, key: u64, period: Duration, now: Time) -> Option<Duration> {
        let suspect = self.suspects.get(&key)?;
        let until = suspect.broke_at.after(period);
        (suspect.is_confirmed && now < until).then(|| until.since(now))
    }

    /// Counts a further prompt of a client on which a replica broke.
    fn add_client(&mut self, client: u64, replica: ReplicaId, period: Duration, now: Time) {
        let is_kept = |one: &SuspectClient| now < one.broke_at.after(period);
        make_room(&mut self.clients, client, is_kept, |one| one.broke_at);
        let prompts = self.clients.get(&client).map_or(0, |one| one.prompts);
        let suspect = SuspectClient {
            prompts: prompts.saturating_add(1),
            replica,
            broke_at: now,
        };
        self.clients.insert(client, suspect);
    }

    /// Counts a replica that broke on a prompt. Returns whether the prompt is in quarantine now.
    fn add_break(
        &mut self,
        key: u64,
        replica: Option<ReplicaId>,
        period: Duration,
        now: Time,
    ) -> bool {
        let remembered = period.saturating_mul(PERIODS_REMEMBERED);
        let is_kept = |one: &Suspect| now < one.broke_at.after(remembered);
        make_room(&mut self.suspects, key, is_kept, |one| one.broke_at);
        let mut suspect = Suspect {
            first: replica,
            broke_at: now,
            is_confirmed: false,
        };
        if let Some(known) = self.suspects.get(&key) {
            suspect.is_confirmed = known.is_confirmed || known.first != replica;
            suspect.first = known.first;
        }
        self.suspects.insert(key, suspect);
        suspect.is_confirmed
    }
}

/// Forgets what is not kept any more, and the oldest entry of a full table without this key.
fn make_room<T>(
    table: &mut BTreeMap<u64, T>,
    key: u64,
    is_kept: impl Fn(&T) -> bool,
    broke_at: impl Fn(&T) -> Time,
) {
    table.retain(|_, one| is_kept(one));
    if table.len() >= SUSPECTS_MAX && !table.contains_key(&key) {
        let oldest = table.iter().min_by_key(|(_, one)| broke_at(one));
        if let Some(oldest) = oldest.map(|(key, _)| *key) {
            table.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(60);
    const DEADLY: u64 = 7;

    fn at(s: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(s))
    }

    fn on(replica: u32) -> Option<ReplicaId> {
        Some(ReplicaId(replica))
    }

    #[test]
    fn the_second_replica_puts_a_prompt_into_quarantine_for_a_while() {
        let mut quarantine = Quarantine::default();
        assert!(!quarantine.add_break(DEADLY, on(1), PERIOD, at(0)));
        assert!(
            !quarantine.add_break(DEADLY, on(1), PERIOD, at(1)),
            "the same replica"
        );
        assert_eq!(quarantine.remaining(DEADLY, PERIOD, at(1)), None);
        assert!(quarantine.add_break(DEADLY, on(2), PERIOD, at(2)));
        assert_eq!(quarantine.remaining(DEADLY, PERIOD, at(2)), Some(PERIOD));
        assert_eq!(quarantine.remaining(DEADLY + 1, PERIOD, at(2)), None);
        assert_eq!(quarantine.remaining(DEADLY, PERIOD, at(62)), None);
        assert!(
            quarantine.add_break(DEADLY, on(1), PERIOD, at(63)),
            "at once"
        );
    }

    #[test]
    fn the_table_is_bounded_in_size_and_in_time() {
        let mut quarantine = Quarantine::default();
        for key in 0..2 * SUSPECTS_MAX as u64 {
            quarantine.add_break(key, on(1), PERIOD, at(0));
        }
        assert_eq!(quarantine.suspects.len(), SUSPECTS_MAX);
        quarantine.add_break(DEADLY, on(1), PERIOD, at(240));
        assert_eq!(quarantine.suspects.len(), 1);
    }
}
