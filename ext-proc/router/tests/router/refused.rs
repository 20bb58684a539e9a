//! Requests of which an engine computes nothing: they take no place of what is known of its cache.

use crate::support::request;
use crate::support::script::Script;
use isotherm_router::{End, Event, Load, Push, RequestId, RouterConfig, ServedBy};

/// Prompts of three blocks whose places in the cache the tests look at.
const KNOWN: u64 = 20;
/// Capacity of the replica's KV cache: the known prompts, and a few more.
const KV_CAPACITY_TOKENS: u64 = 6_000;
/// Blocks of a prompt that is four times as long as the whole cache.
const LONG: u64 = 400;

/// A replica that has answered some prompts, and reports the capacity of its cache.
fn script() -> Script {
    let config = RouterConfig {
        push: Push::Blind,
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 1);
    probe(&mut script);
    for id in 0..KNOWN {
        script.arrive(request(id, id, &known(id)));
        assert_eq!(script.sent().len(), 1);
        script.finish_as(id, End::Answered, ServedBy::Unreported, Some((192, 0)));
    }
    script
}

fn known(id: u64) -> [u64; 3] {
    [id, id + 1, id + 2]
}

fn probe(script: &mut Script) {
    script.sleep(100);
    let load = Load {
        kv_capacity_tokens: Some(KV_CAPACITY_TOKENS),
        ..Load::default()
    };
    script.probe_load(0, load);
}

/// The matched lengths of the known prompts.
fn matched(script: &Script) -> Vec<u32> {
    let explain = |id| {
        let explanation = script
            .router
            .explain(script.now, &request(9_999, id, &known(id)));
        explanation.candidates[0].matched_bytes
    };
    (0..KNOWN).map(explain).collect()
}

/// A request with a long prompt of its own.
fn send_long(script: &mut Script, id: u64, tells_start: bool) {
    let blocks: Vec<u64> = (0..LONG).map(|block| id * 10_000 + block).collect();
    let mut request = request(id, id, &blocks);
    request.tells_start = tells_start;
    script.arrive(request);
    assert_eq!(script.sent().len(), 1);
}

fn check_nothing_is_forgotten(end: impl Fn(&mut Script, u64)) {
    let mut script = script();
    let before = matched(&script);
    assert!(before.iter().all(|bytes| *bytes == 768), "{before:?}");
    for id in 1_000..1_100 {
        send_long(&mut script, id, true);
        probe(&mut script);
        end(&mut script, id);
        probe(&mut script);
    }
    assert_eq!(matched(&script), before);
}

#[test]
fn a_hundred_refused_prompts_push_nothing_out_of_the_index() {
    for end in [End::Refused, End::Failed, End::Broke, End::Errored] {
        check_nothing_is_forgotten(|script, id| {
            script.finish_as(id, end, ServedBy::Unreported, None);
        });
    }
}

#[test]
fn a_hundred_prompts_aborted_before_their_first_token_push_nothing_out_of_the_index() {
    check_nothing_is_forgotten(Script::abort);
}

#[test]
fn refused_prompts_at_once_push_nothing_out_of_the_index() {
    let mut script = script();
    let before = matched(&script);
    for id in 1_000..1_100 {
        send_long(&mut script, id, true);
    }
    probe(&mut script);
    assert_eq!(matched(&script), before, "while they wait in the engine");
    for id in 1_000..1_100 {
        script.finish_as(id, End::Refused, ServedBy::Unreported, None);
    }
    assert_eq!(matched(&script), before);
}

#[test]
fn a_long_prompt_takes_its_place_once_it_is_answered() {
    let mut script = script();
    send_long(&mut script, 1_000, false);
    let tokens = Some((25_600, 0));
    script.finish_as(1_000, End::Answered, ServedBy::Unreported, tokens);
    assert!(matched(&script).iter().all(|bytes| *bytes == 0));
}

#[test]
fn a_long_prompt_takes_its_place_once_its_answer_begins() {
    let mut script = script();
    send_long(&mut script, 1_000, true);
    script.event(Event::Began(RequestId(1_000)));
    assert!(matched(&script).iter().all(|bytes| *bytes == 0));
    script.abort(1_000);
    assert!(matched(&script).iter().all(|bytes| *bytes == 0));
}
