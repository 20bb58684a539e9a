//! The systems: the default policy, and every rival with each push rule that may be its best.

use isotherm_policies::{BlockCost, EndpointScorers, LMetric, PolicyName, SMetric, TokenLoad};
use isotherm_router::{CacheAwareRules, MissRule, Policy, PolicyFactory, Push, RouterConfig};
use isotherm_simulator::Arrangement;

use super::OURS;

/// Outstanding requests of a replica with the push rule `outstanding`: within the 20 to 50 that SkyLB saw fit.
const OUTSTANDING: Push = Push::Outstanding { max: 32 };

/// Rules of SGLang's gateway 0.3.2, with the thresholds that its command line sets. `cache_aware` is the algorithm as published,
/// with the thresholds of the library.
const GATEWAY: CacheAwareRules = CacheAwareRules {
    cache_threshold: 0.3,
    balance_abs_threshold: 64,
    balance_rel_threshold: 1.5,
    on_miss: MissRule::LeastOutstanding,
};

/// Rivals of 2026, which no configuration names: llm-d's default since August, LMetric, SMetric, and Dynamo's router.
const RIVALS: [Rival; 4] = [
    ("llm-d-token-load", |_| Box::new(TokenLoad)),
    ("lmetric", |_| Box::new(LMetric)),
    ("smetric", |_| Box::new(SMetric)),
    ("dynamo", |_| Box::new(BlockCost)),
];
/// llm-d's default scorers until August 2026.
const SCORERS: Rival = ("llm-d", |_| Box::<EndpointScorers>::default());

/// A policy that no configuration names.
type Rival = (&'static str, fn(u64) -> Box<dyn Policy>);

/// A system under test.
#[derive(Clone)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) arrangement: Arrangement,
}

impl System {
    const fn new(name: String, arrangement: Arrangement) -> Self {
        Self { name, arrangement }
    }
}

/// Every system for this number of regions, the default policy first.
pub(super) fn systems(regions: usize) -> Vec<System> {
    let router = Arrangement::Router;
    let ours = config(PolicyName::Isotherm, Push::Pending);
    let mut systems = vec![System::new(OURS.to_owned(), router(ours))];
    for &policy in PolicyName::ALL {
        if policy != PolicyName::Isotherm {
            for push in [Push::Pending, Push::Blind] {
                let name = format!("{policy} / {}", rule(push));
                systems.push(System::new(name, router(config(policy, push))));
            }
        }
    }
    // Without forwarding, as an endpoint picker serves its own pool.
    let scorers = [Push::Blind, Push::Pending, OUTSTANDING].map(|push| (SCORERS, push));
    for ((rival, build), push) in scorers.into_iter().chain(rivals()) {
        let name = format!("{rival} / {}", rule(push));
        let config = config(PolicyFactory::new(rival, build), push);
        systems.push(System::new(name, Arrangement::RegionLocal(config)));
    }
    for push in [Push::Blind, Push::Pending] {
        let name = format!("sglang-gateway / {}", rule(push));
        systems.push(System::new(name, Arrangement::RegionLocal(gateway(push))));
    }
    if regions > 1 {
        systems.extend(central());
    }
    systems
}

/// Balancers in the first region that see the replicas of all regions.
fn central() -> Vec<System> {
    let policies = [
        (PolicyName::Isotherm, Push::Pending),
        (PolicyName::PrefixTree, Push::Pending),
        (PolicyName::PrefixTree, Push::Blind),
        (PolicyName::CacheAware, Push::Blind),
        (PolicyName::DualMap, Push::Pending),
        (PolicyName::LeastOutstanding, Push::Blind),
    ];
    let system = |name: &str, policy, push| {
        let arrangement = Arrangement::Central {
            config: config(policy, push),
            region: 0,
        };
        System::new(format!("central {name} / {}", rule(push)), arrangement)
    };
    let systems = policies.map(|(policy, push)| system(policy.as_ref(), policy.into(), push));
    let scorers = [Push::Blind, Push::Pending].map(|push| (SCORERS, push));
    let rivals = scorers.into_iter().chain(rivals());
    let rivals =
        rivals.map(|((rival, build), push)| system(rival, PolicyFactory::new(rival, build), push));
    let arrangement = Arrangement::Central {
        config: gateway(Push::Blind),
        region: 0,
    };
    let gateway = System::new("central sglang-gateway / blind".to_owned(), arrangement);
    let systems = systems.into_iter().chain(rivals);
    systems.chain([gateway]).collect()
}

/// Every rival with both push rules.
fn rivals() -> impl Iterator<Item = (Rival, Push)> {
    let pushes = [Push::Blind, Push::Pending];
    let rivals = RIVALS.into_iter();
    rivals.flat_map(move |rival| pushes.map(|push| (rival, push)))
}

/// SGLang's gateway.
fn gateway(push: Push) -> RouterConfig {
    RouterConfig {
        cache_aware: GATEWAY,
        ..config(PolicyName::CacheAware, push)
    }
}

/// The shipped configuration but for the policy and the push rule: a request that waits too long is refused.
fn config(policy: impl Into<PolicyFactory>, push: Push) -> RouterConfig {
    RouterConfig {
        policy: policy.into(),
        push,
        ..RouterConfig::default()
    }
}

const fn rule(push: Push) -> &'static str {
    match push {
        Push::Pending => "pending",
        Push::Blind => "blind",
        Push::Outstanding { .. } => "outstanding",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_policy_is_a_rival_and_names_are_unique() {
        let systems = systems(3);
        let names: BTreeSet<&str> = systems.iter().map(|system| system.name.as_str()).collect();
        assert_eq!(names.len(), systems.len());
        for policy in PolicyName::ALL {
            let prefix = policy.to_string();
            assert!(
                names.iter().any(|name| name.starts_with(&prefix)),
                "{policy}"
            );
        }
        for rival in [
            "llm-d / blind",
            "llm-d-token-load / blind",
            "lmetric / pending",
            "smetric / blind",
            "central dynamo / pending",
            "sglang-gateway / blind",
            "central llm-d / blind",
        ] {
            assert!(names.contains(rival), "{rival}");
        }
        assert!(super::systems(1).len() < systems.len());
    }
}
