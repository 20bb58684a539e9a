//! `isotherm`: a warm cache against a wait, both in seconds, by what was measured.

use std::time::Duration;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{
    End, Event, Push, Reason, ReplicaId, Request, RequestId, RouterConfig, ServedBy,
};

fn script(push: Push, replicas: u32) -> Script {
    let config = RouterConfig {
        policy: PolicyName::Isotherm.into(),
        push,
        ..RouterConfig::default()
    };
    Script::new(config, replicas)
}

/// A prompt of so many blocks, of 64 tokens each, that shares nothing with others.
fn long(name: u64, blocks: u64) -> Vec<u64> {
    (0..blocks).map(|i| 1_000_000 + 10_000 * name + i).collect()
}

/// A first message of this session.
fn asked(id: u64, blocks: &[u64]) -> Request {
    request(id, id, blocks)
}

/// The request is answered: so many of its prompt tokens were cached, and its first token came after so long.
fn answered(script: &mut Script, id: u64, tokens: (u32, u32), ttft_us: u64) {
    script.now = script.now.after(Duration::from_micros(ttft_us));
    script.event(Event::Finished {
        id: RequestId(id),
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: Some(ttft_us),
        prompt_tokens: Some(tokens.0),
        cached_tokens: Some(tokens.1),
        completion_tokens: None,
    });
}

#[test]
fn a_repeated_prompt_goes_to_its_cache_before_anything_is_measured() {
    for first_ms in [5, 50, 500, 5_000] {
        let mut script = script(Push::Blind, 4);
        script.arrive(asked(0, &long(0, 16)));
        let (_, home) = script.sent().remove(0);
        answered(&mut script, 0, (1_024, 0), first_ms * 1_000);
        for id in 1..4 {
            script.arrive(asked(id, &long(0, 16)));
            let (_, decision) = script.dispatches().remove(0);
            let went = (decision.replica.0, decision.reason);
            assert_eq!(
                went,
                (home, Reason::Prefix),
                "first token after {first_ms} ms"
            );
            answered(&mut script, id, (1_024, 1_008), 20_000);
        }
    }
}

#[test]
fn a_long_prompt_waits_for_its_cache_and_a_short_one_does_not() {
    for (blocks, waits) in [(200, true), (2, false)] {
        let mut script = script(Push::Pending, 2);
        script.arrive(asked(0, &long(0, blocks)));
        let (_, home) = script.sent().remove(0);
        script.finish(0);
        // Prompts are short as a rule, so a busy replica is not busy for long.
        for id in 2..10 {
            script.arrive(asked(id, &long(id, 2)));
            assert_eq!(script.sent().len(), 1);
            script.finish(id);
        }
        script.probe(home, 1);
        script.arrive(asked(1, &long(0, blocks)));
        let sent = script.sent();
        assert_eq!(sent.is_empty(), waits, "{blocks} blocks: {sent:?}");
        script.probe(home, 0);
        let home_takes = if waits { vec![(1, home)] } else { vec![] };
        assert_eq!(script.sent(), home_takes);
    }
}

#[test]
fn a_restricted_request_waits_for_a_cache_that_it_may_use() {
    let whole = long(0, 250);
    let of = |id, blocks: &[u64], replicas: &[u32]| Request {
        subset: Some(replicas.iter().copied().map(ReplicaId).collect()),
        ..asked(id, blocks)
    };
    let mut script = script(Push::Pending, 3);
    script.arrive(of(0, &whole, &[0]));
    script.arrive(of(1, &whole[..200], &[1]));
    assert_eq!(script.sent(), [(0, 0), (1, 1)]);
    script.finish(0);
    script.finish(1);
    // Prompts are short as a rule, so a busy replica is not busy for long.
    for id in 2..20 {
        script.arrive(asked(id, &long(id, 2)));
        assert_eq!(script.sent().len(), 1);
        script.finish(id);
    }
    script.probe(0, 1);
    script.probe(1, 1);
    script.arrive(of(20, &whole, &[1, 2]));
    assert_eq!(script.sent(), []);
    script.probe(1, 0);
    assert_eq!(script.sent(), [(20, 1)]);
}

/// A pool of this push mode whose requests take a second each. Each of its two replicas writes so many answers: these.
fn writing(push: Push, answers: usize) -> (Script, [Vec<u64>; 2]) {
    let mut script = script(push, 2);
    for id in 100..150 {
        script.arrive(asked(id, &long(id, 2)));
        script.sleep(1_000);
        script.probe_all(0..2);
        answered(&mut script, id, (128, 0), 40_000);
    }
    script.sent();
    let mut at = [vec![], vec![]];
    for id in 0..2 * answers as u64 {
        script.arrive(asked(id, &long(id, 2)));
        let (_, replica) = script.sent().remove(0);
        at[replica as usize].push(id);
    }
    assert_eq!(at.each_ref().map(Vec::len), [answers; 2]);
    (script, at)
}

const TO_NINE: Push = Push::Outstanding { max: 9 };

#[test]
fn a_prompt_that_would_stall_answers_for_long_lets_them_end_first() {
    let (mut script, [at, _]) = writing(TO_NINE, 8);
    script.arrive(asked(20, &long(20, 2_000)));
    assert_eq!(script.sent(), [], "eight answers end sooner than it begins");
    script.arrive(asked(21, &long(21, 2)));
    assert_eq!(script.sent().len(), 1, "a short one goes at once");
    script.finish(21);
    at[..4].iter().for_each(|id| script.finish(*id));
    script.sleep(50);
    assert_eq!(script.sent(), [(20, 0)]);
}

#[test]
fn a_prompt_that_would_stall_answers_does_not_take_the_only_replica_with_room() {
    let (mut script, [_, other]) = writing(TO_NINE, 9);
    script.arrive(asked(20, &long(20, 2_000)));
    other[..3].iter().for_each(|id| script.finish(*id));
    script.sleep(50);
    assert_eq!(script.sent(), [], "six answers end sooner than it begins");
    other[3..5].iter().for_each(|id| script.finish(*id));
    script.sleep(50);
    assert_eq!(script.sent(), [(20, 1)]);
}

#[test]
fn a_prompt_that_would_stall_answers_goes_at_once_where_requests_do_not_wait() {
    let (mut script, _) = writing(Push::Blind, 8);
    script.arrive(asked(20, &long(20, 2_000)));
    assert_eq!(script.sent().len(), 1);
}

#[test]
fn a_prompt_that_would_stall_answers_waits_for_as_long_as_it_takes() {
    let waited_ms = |blocks| {
        let (mut script, _) = writing(TO_NINE, 8);
        script.arrive(asked(20, &long(20, blocks)));
        (1..=300).find_map(|step| {
            script.sleep(100);
            script.probe_all(0..2);
            (script.sent() == [(20, 0)]).then_some(100 * step)
        })
    };
    let (short, long) = (waited_ms(1_000), waited_ms(2_000));
    println!("{short:?} {long:?} ms, though no answer has ended");
    assert!(short.is_some_and(|short_ms| short_ms > 1_000));
    assert!(long > short.map(|short_ms| 2 * short_ms - 500));
    assert!(long < short.map(|short_ms| 2 * short_ms + 500));
}
