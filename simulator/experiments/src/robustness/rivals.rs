//! The systems: the default policy, and every rival with each push rule that may be its best.

use isotherm_router::{
    CacheAwareRules, MissRule, PolicyName, Push, ResearchPolicy, RouterConfig, ScorerWeights,
};
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
const RIVALS: [(&str, ResearchPolicy); 4] = [
    ("llm-d-token-load", ResearchPolicy::TokenLoad),
    ("lmetric", ResearchPolicy::LMetric),
    ("smetric", ResearchPolicy::SMetric),
    ("dynamo", ResearchPolicy::BlockCost),
];

/// A system under test.
#[derive(Clone)]
pub(super) struct System {
    pub(super) name: String,
    pub(super) arrangement: Arrangement,
    /// A policy of experiments, instead of the configured one.
    pub(super) research: Option<ResearchPolicy>,
}

impl System {
    fn new(name: String, arrangement: Arrangement) -> Self {
        Self {
            name,
            arrangement,
            research: None,
        }
    }

    /// A policy of experiments.
    fn research(name: String, arrangement: Arrangement, policy: ResearchPolicy) -> Self {
        Self {
            research: Some(policy),
            ..Self::new(name, arrangement)
        }
    }

    /// llm-d's default scorers until August 2026.
    fn llm_d(name: String, arrangement: Arrangement) -> Self {
        let policy = ResearchPolicy::Scorers(ScorerWeights::default());
        Self::research(name, arrangement, policy)
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
    // The configured policy is replaced; without forwarding, as an endpoint picker serves its own pool.
    for push in [Push::Blind, Push::Pending, OUTSTANDING] {
        let arrangement = Arrangement::RegionLocal(config(PolicyName::LeastOutstanding, push));
        systems.push(System::llm_d(
            format!("llm-d / {}", rule(push)),
            arrangement,
        ));
    }
    for (rival, policy) in RIVALS {
        for push in [Push::Blind, Push::Pending] {
            let name = format!("{rival} / {}", rule(push));
            let arrangement = Arrangement::RegionLocal(config(PolicyName::LeastOutstanding, push));
            systems.push(System::research(name, arrangement, policy));
        }
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
    let arrangement = |policy, push| Arrangement::Central {
        config: config(policy, push),
        region: 0,
    };
    let systems = policies.map(|(policy, push)| {
        let name = format!("central {policy} / {}", rule(push));
        System::new(name, arrangement(policy, push))
    });
    let llm_d = [Push::Blind, Push::Pending].map(|push| {
        let name = format!("central llm-d / {}", rule(push));
        System::llm_d(name, arrangement(PolicyName::LeastOutstanding, push))
    });
    let rivals = RIVALS.into_iter().flat_map(|(rival, policy)| {
        [Push::Blind, Push::Pending].map(|push| {
            let name = format!("central {rival} / {}", rule(push));
            System::research(
                name,
                arrangement(PolicyName::LeastOutstanding, push),
                policy,
            )
        })
    });
    let arrangement = Arrangement::Central {
        config: gateway(Push::Blind),
        region: 0,
    };
    let gateway = System::new("central sglang-gateway / blind".to_owned(), arrangement);
    let systems = systems.into_iter().chain(llm_d);
    systems.chain(rivals).chain([gateway]).collect()
}

/// SGLang's gateway.
fn gateway(push: Push) -> RouterConfig {
    RouterConfig {
        cache_aware: GATEWAY,
        ..config(PolicyName::CacheAware, push)
    }
}

/// The shipped configuration but for the policy and the push rule: a request that waits too long is refused.
fn config(policy: PolicyName, push: Push) -> RouterConfig {
    RouterConfig {
        policy,
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
