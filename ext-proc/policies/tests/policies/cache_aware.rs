//! SGLang's rules, threshold by threshold.

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{CacheAwareRules, MissRule, Push, Reason, RouterConfig};

fn config(push: Push) -> RouterConfig {
    RouterConfig {
        policy: PolicyName::CacheAware.into(),
        push,
        ..RouterConfig::default()
    }
}

fn script(replicas: u32) -> Script {
    Script::new(config(Push::Blind), replicas)
}

/// Sends a request on its way: where it went, and why.
fn send(script: &mut Script, id: u64, blocks: &[u64]) -> (u32, Reason) {
    script.arrive(request(id, id, blocks));
    let (_, decision) = script.dispatches().remove(0);
    (decision.replica.0, decision.reason)
}

#[test]
fn more_than_half_of_the_prompt_decides_and_half_does_not() {
    let mut script = script(2);
    let (home, _) = send(&mut script, 0, &[1, 2]);
    script.finish(0);
    assert_eq!(
        send(&mut script, 1, &[1, 2, 3]),
        (home, Reason::Prefix),
        "two of three"
    );
    script.finish(1);
    assert_eq!(
        send(&mut script, 2, &[1, 2, 8, 9]),
        (1 - home, Reason::Spread),
        "two of four"
    );
}

#[test]
fn an_unknown_prompt_goes_to_the_least_cached_replica_not_the_least_loaded() {
    let mut script = script(2);
    let (large, _) = send(&mut script, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    script.finish(0);
    for id in 1..4 {
        let (replica, reason) = send(&mut script, id, &[100 * id, 100 * id + 1]);
        assert_eq!((replica, reason), (1 - large, Reason::Spread), "{id}");
    }
}

#[test]
fn an_unknown_prompt_goes_to_the_replica_with_the_fewest_requests_where_the_rules_say_so() {
    let rules = CacheAwareRules {
        on_miss: MissRule::LeastOutstanding,
        ..CacheAwareRules::default()
    };
    let config = RouterConfig {
        cache_aware: rules,
        ..config(Push::Blind)
    };
    let mut script = Script::new(config, 2);
    let (large, _) = send(&mut script, 0, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let (other, _) = send(&mut script, 1, &[10]);
    assert_eq!(other, 1 - large);
    script.finish(0);
    let next = send(&mut script, 2, &[20]);
    assert_eq!(
        next,
        (large, Reason::Spread),
        "it has more text, and no request"
    );
}

#[test]
fn a_hot_prompt_stays_until_load_is_out_of_balance_and_returns_when_it_is_not() {
    let mut script = script(2);
    let (home, _) = send(&mut script, 0, &[1, 2, 3]);
    for id in 1..33 {
        let found = send(&mut script, id, &[1, 2, 3]);
        assert_eq!(found, (home, Reason::Prefix), "{id}");
    }
    let (other, reason) = send(&mut script, 33, &[1, 2, 3]);
    assert_eq!((other, reason), (1 - home, Reason::LeastLoaded), "33 to 0");
    let (_, reason) = send(&mut script, 34, &[1, 2, 3]);
    assert_eq!(reason, Reason::Prefix, "33 to 1 is within 32");
}

#[test]
fn a_difference_that_is_small_beside_the_load_is_no_imbalance() {
    let mut script = script(2);
    // Two prompts, one home each, 400 outstanding: the absolute threshold alone would switch at 33 apart.
    for id in 0..800 {
        let block = 10 * (id % 2);
        send(&mut script, id, &[block, block + 1]);
    }
    for id in 800..840 {
        let (_, reason) = send(&mut script, id, &[0, 1]);
        assert_eq!(reason, Reason::Prefix, "{id}: at most 440 to 400");
    }
    send(&mut script, 840, &[0, 1]);
    let (_, reason) = send(&mut script, 841, &[0, 1]);
    assert_eq!(reason, Reason::LeastLoaded, "441 to 400");
}

#[test]
fn a_full_replica_counts_when_load_is_out_of_balance() {
    let mut script = Script::new(config(Push::Outstanding { max: 33 }), 3);
    let (home, _) = send(&mut script, 0, &[1, 2, 3]);
    let (other, _) = send(&mut script, 1, &[7, 8, 9]);
    for id in 2..34 {
        send(&mut script, id, &[1, 2, 3]);
    }
    let (third, reason) = send(&mut script, 40, &[7, 8, 9]);
    assert_eq!(
        reason,
        Reason::LeastLoaded,
        "{home} is full with 33, {third} has none"
    );
    assert!(third != home && third != other);
}

#[test]
fn the_thresholds_are_configured() {
    let rules = CacheAwareRules {
        cache_threshold: 0.3,
        balance_abs_threshold: 2,
        balance_rel_threshold: 1.5,
        ..CacheAwareRules::default()
    };
    let config = RouterConfig {
        cache_aware: rules,
        ..config(Push::Blind)
    };
    let mut script = Script::new(config, 2);
    let (home, _) = send(&mut script, 0, &[1, 2]);
    assert_eq!(
        send(&mut script, 1, &[1, 2, 8, 9]),
        (home, Reason::Prefix),
        "two of four"
    );
    send(&mut script, 2, &[1, 2]);
    let (other, reason) = send(&mut script, 3, &[1, 2]);
    assert_eq!((other, reason), (1 - home, Reason::LeastLoaded), "3 to 0");
}
