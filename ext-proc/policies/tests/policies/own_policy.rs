//! A policy of one's own, as `docs/policies.md` shows it: a router serves requests by it.

use isotherm_router::{PolicyFactory, Push, Reason, RouterConfig};

use crate::support::request;
use crate::support::script::Script;
use crate::warm_unless_busy::WarmUnlessBusy;

#[test]
fn a_router_follows_the_policy_until_the_warm_replica_is_busy() {
    let config = RouterConfig {
        policy: PolicyFactory::new("warm_unless_busy", |_| Box::new(WarmUnlessBusy)),
        push: Push::Blind,
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 3);
    let sent: Vec<_> = (0..6)
        .map(|id| {
            script.arrive(request(id, id, &[1, 2, 3]));
            let (_, decision) = script.dispatches().remove(0);
            (decision.replica, decision.reason)
        })
        .collect();
    let warm = sent[0].0;
    assert_eq!(sent[0].1, Reason::LeastLoaded, "no cache holds the prompt");
    assert_eq!(sent[1..5], [(warm, Reason::Prefix); 4]);
    assert_ne!(sent[5].0, warm, "five requests more than elsewhere");
    assert_eq!(sent[5].1, Reason::LeastLoaded);
}

#[test]
fn the_document_shows_these_programs() {
    let document = include_str!("../../../../docs/policies.md");
    for program in [
        include_str!("warm_unless_busy.rs"),
        include_str!("../../../examples/own_policy.rs"),
    ] {
        let block = format!("```rust\n{program}```\n");
        assert!(
            document.contains(&block),
            "docs/policies.md lacks:\n{block}"
        );
    }
}
