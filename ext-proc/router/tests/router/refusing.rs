//! A replica that refuses what its peers answer: it serves the model by another name, it alone wants a key, or a front of it
//! limits requests.

use std::collections::BTreeMap;

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{Availability, End, Request, RouterConfig, ServedBy};

const REPLICAS: u32 = 3;
const ANSWER_MS: u64 = 400;
const CLIENTS_AT_ONCE: usize = 6;

/// Clients that send one request each, so many at once. Returns how many each end had, and for how many milliseconds a replica counted as
/// failing.
fn play(
    script: &mut Script,
    requests: impl Iterator<Item = Request>,
    end_of: impl Fn(&Request, u32) -> End,
) -> BTreeMap<&'static str, u32> {
    let mut requests = requests.peekable();
    let (mut waiting, mut at) = (BTreeMap::new(), BTreeMap::new());
    let mut ends = BTreeMap::new();
    let mut ms = 0_u64;
    while requests.peek().is_some() || !waiting.is_empty() || !at.is_empty() {
        while waiting.len() + at.len() < CLIENTS_AT_ONCE
            && let Some(request) = requests.next()
        {
            waiting.insert(request.id.0, request.clone());
            script.arrive(request);
        }
        for (id, replica) in script.sent() {
            let request = waiting.remove(&id).unwrap();
            let end = end_of(&request, replica);
            let takes = if end == End::Answered { ANSWER_MS } else { 1 };
            at.insert(id, (ms + takes, end));
        }
        at.retain(|id, (due, end)| {
            let ends_now = *due <= ms;
            if ends_now {
                script.finish_as(*id, *end, ServedBy::Unreported, None);
                let name = if *end == End::Answered {
                    "answered"
                } else {
                    "refused"
                };
                *ends.entry(name).or_default() += 1;
            }
            !ends_now
        });
        let failing = (0..REPLICAS).filter(|id| script.availability(*id) == Availability::Failing);
        *ends.entry("failing").or_default() += failing.count() as u32;
        ms += 1;
        script.sleep(1);
        if ms.is_multiple_of(100) {
            script.probe_all(0..REPLICAS);
        }
        assert!(ms < 600_000, "{} left", waiting.len());
    }
    ends
}

fn clients(count: u64, session: impl Fn(u64) -> u64) -> impl Iterator<Item = Request> {
    (0..count).map(move |id| request(id, session(id), &[1_000 + id, id]))
}

#[test]
fn few_clients_of_one_replica_that_refuses_all_fail() {
    for same_session in [true, false] {
        for bad in [&[0][..], &[0, 1]] {
            let mut script = Script::new(RouterConfig::default(), REPLICAS);
            let session = |id| if same_session { 7 } else { id };
            let ends = play(&mut script, clients(120, session), |_, replica| {
                let is_bad = bad.contains(&replica);
                if is_bad { End::Refused } else { End::Answered }
            });
            let most = 12 * bad.len() as u32;
            assert!(ends["refused"] <= most, "{ends:?} beside {bad:?}");
        }
    }
}

#[test]
fn a_replica_that_answers_again_is_trusted_again() {
    let mut script = Script::new(RouterConfig::default(), REPLICAS);
    let refuses = |request: &Request, replica| {
        let is_bad = replica == 0 && request.id.0 < 40;
        if is_bad { End::Refused } else { End::Answered }
    };
    play(&mut script, clients(200, |id| id), refuses);
    assert_eq!(script.availability(0), Availability::Available);
}

#[test]
fn bad_requests_of_one_client_close_nothing() {
    for bad_of_10 in [1, 5, 9, 10] {
        let mut script = Script::new(RouterConfig::default(), REPLICAS);
        let of = |id: u64| if id % 10 < bad_of_10 { 1_000_000 } else { id };
        let requests = clients(600, of);
        let ends = play(&mut script, requests, |request, _| {
            let is_bad = request
                .session
                .is_some_and(|session| session.0 == 1_000_000);
            if is_bad { End::Refused } else { End::Answered }
        });
        assert_eq!(u64::from(ends["refused"]), 60 * bad_of_10);
        assert_eq!(ends["failing"], 0, "{bad_of_10} of 10");
    }
}

#[test]
fn a_conversation_that_has_become_too_long_closes_nothing() {
    let mut script = Script::new(RouterConfig::default(), REPLICAS);
    let all: Vec<u64> = (0..200).collect();
    for turn in 0..60_u64 {
        let blocks = &all[..10 + turn as usize];
        script.arrive(request(turn, 7, blocks));
        let others = turn + 1_000;
        script.arrive(request(others, others, &[others]));
        assert_eq!(script.sent().len(), 2);
        let end = if turn < 20 {
            End::Answered
        } else {
            End::Refused
        };
        script.finish_as(turn, end, ServedBy::Unreported, None);
        script.finish(others);
        script.sleep(100);
        script.probe_all(0..REPLICAS);
        for replica in 0..REPLICAS {
            assert_eq!(script.availability(replica), Availability::Available);
        }
    }
}
