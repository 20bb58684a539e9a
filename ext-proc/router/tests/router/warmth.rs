//! Warmth of replicas: what their removal would throw away.

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{Push, ReplicaId, RouterConfig};

#[test]
fn a_replica_is_as_warm_as_the_recent_prefixes_that_it_alone_holds() {
    let config = RouterConfig {
        policy: PolicyName::RoundRobin.into(),
        push: Push::Blind,
        ..RouterConfig::default()
    };
    let mut script = Script::new(config, 2);
    let send = |script: &mut Script, id: u64, blocks: &[u64]| {
        script.arrive(request(id, id, blocks));
        let (_, decision) = script.dispatches().remove(0);
        script.finish(id);
        decision.replica
    };
    // A system prompt of two blocks is on both replicas; each has a conversation of its own behind it.
    let first = send(&mut script, 1, &[1, 2, 10, 11, 12, 13]);
    let second = send(&mut script, 2, &[1, 2, 20]);
    assert_ne!(first, second);
    let warmth = script.router.warmth(0);
    let of = |replica: ReplicaId| warmth.get(&replica).copied().unwrap_or_default();
    assert!(of(second) > 0.0, "{warmth:?}");
    assert!(
        (of(first) / of(second) - 4.0).abs() < 0.2,
        "four blocks to one: {warmth:?}"
    );
    // Nothing was used after the last position.
    let later = script.router.index_tick();
    assert!(script.router.warmth(later).is_empty());
    // The second conversation goes on where the first one is, so that neither replica alone holds it.
    let third = send(&mut script, 3, &[1, 2, 20]);
    assert_eq!(third, first);
    let warmth = script.router.warmth(0);
    assert!(!warmth.contains_key(&second), "{warmth:?}");
}
