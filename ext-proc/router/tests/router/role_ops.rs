//! Pools with changing roles, under random events: requests go where their roles allow it, and no claim is lost.

use std::collections::BTreeMap;

use crate::support::request;
use crate::support::script::Script;
use isotherm_policies::PolicyName;
use isotherm_router::{End, Event, Push, ReplicaId, RequestId, Role, RouterConfig, ServedBy};
use proptest::prelude::*;

const REPLICAS: u32 = 5;

#[derive(Clone, Debug)]
enum Op {
    Arrive { prompt: u64, blocks: u64 },
    Begin(u64),
    Finish(u64, End),
    Abort(u64),
    ChangeRole(u32, Role),
    ProbeAll,
    ProbeFails(u32),
    Leave(u32),
    Join(Role),
    Sleep(u64),
}

fn role() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Both), Just(Role::Prefill), Just(Role::Decode)]
}

fn op() -> impl Strategy<Value = Op> {
    let end = prop_oneof![
        3 => Just(End::Answered),
        1 => Just(End::Refused),
        1 => Just(End::Failed),
    ];
    prop_oneof![
        8 => (0_u64..5, 1_u64..40).prop_map(|(prompt, blocks)| Op::Arrive { prompt, blocks }),
        3 => (0_u64..60).prop_map(Op::Begin),
        4 => (0_u64..60, end).prop_map(|(id, end)| Op::Finish(id, end)),
        1 => (0_u64..60).prop_map(Op::Abort),
        1 => (0..REPLICAS, role()).prop_map(|(id, role)| Op::ChangeRole(id, role)),
        2 => Just(Op::ProbeAll),
        1 => (0..REPLICAS).prop_map(Op::ProbeFails),
        1 => (0..REPLICAS).prop_map(Op::Leave),
        1 => role().prop_map(Op::Join),
        1 => (1_u64..1_000).prop_map(Op::Sleep),
    ]
}

/// A router beside the claims that its decisions make.
struct World {
    script: Script,
    roles: BTreeMap<u32, Role>,
    /// Replica and prefill replica of each request in flight; the latter until the response begins.
    claims: BTreeMap<u64, (u32, Option<u32>)>,
    next: u64,
    /// Ids of replicas never return, so a replica that joins gets a new one.
    next_replica: u32,
}

impl World {
    fn new(policy: PolicyName, push: Push) -> Self {
        let config = RouterConfig {
            policy: policy.into(),
            push,
            ..RouterConfig::default()
        };
        let mut world = Self {
            script: Script::new(config, 0),
            roles: BTreeMap::new(),
            claims: BTreeMap::new(),
            next: 0,
            next_replica: 0,
        };
        for role in [Role::Both, Role::Decode, Role::Prefill, Role::Prefill] {
            world.join(role);
        }
        world.script.probe_all(0..4);
        world
    }

    fn join(&mut self, role: Role) {
        self.script.add_as(self.next_replica, role);
        self.roles.insert(self.next_replica, role);
        self.next_replica += 1;
    }

    /// The replica that an operation means.
    fn replica(&self, n: u32) -> Option<u32> {
        let count = self.roles.len().max(1);
        self.roles.keys().nth(n as usize % count).copied()
    }

    fn run(&mut self, op: Op) {
        let script = &mut self.script;
        match op {
            Op::Arrive { prompt, blocks } => {
                let blocks: Vec<u64> = (0..blocks).map(|block| 1_000 * prompt + block).collect();
                script.arrive(request(self.next, prompt, &blocks));
                self.next += 1;
            }
            Op::Begin(id) => script.event(Event::Began(RequestId(id))),
            Op::Finish(id, end) => script.finish_as(id, end, ServedBy::Unreported, None),
            Op::Abort(id) => script.abort(id),
            Op::ProbeAll => script.probe_all(self.roles.keys().copied()),
            Op::Sleep(ms) => script.sleep(ms),
            Op::Join(role) if self.roles.len() < REPLICAS as usize => self.join(role),
            Op::Join(_) => {}
            Op::ChangeRole(n, role) => {
                if let Some(id) = self.replica(n) {
                    self.roles.insert(id, role);
                    self.script.event(Event::RoleChanged(ReplicaId(id), role));
                }
            }
            Op::ProbeFails(n) => {
                if let Some(id) = self.replica(n) {
                    self.script.probe_fails(id);
                }
            }
            Op::Leave(n) => {
                if let Some(id) = self.replica(n) {
                    self.roles.remove(&id);
                    self.script.event(Event::Removed(ReplicaId(id)));
                }
            }
        }
    }

    /// Forgets the claims that an operation ends.
    fn forget(&mut self, op: &Op) {
        match op {
            Op::Begin(id) => {
                if let Some((_, prefiller)) = self.claims.get_mut(id) {
                    *prefiller = None;
                }
            }
            Op::Finish(id, _) | Op::Abort(id) => drop(self.claims.remove(id)),
            _ => {}
        }
    }

    /// Checks the dispatches of an operation, and the counts after it.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for (id, decision) in self.script.dispatches() {
            let role = |id: u32| self.roles.get(&id).copied();
            let replica = decision.replica.0;
            prop_assert!(
                role(replica).is_some_and(Role::has_requests),
                "{decision:?}"
            );
            for fallback in &decision.fallbacks {
                prop_assert!(role(fallback.0).is_some_and(Role::has_requests));
            }
            let prefiller = decision.prefiller.map(|prefiller| prefiller.0);
            if let Some(prefiller) = prefiller {
                prop_assert_eq!(role(prefiller), Some(Role::Prefill));
            }
            self.claims.insert(id, (replica, prefiller));
        }
        let mut expected: BTreeMap<u32, u32> = self.roles.keys().map(|id| (*id, 0)).collect();
        let claims = self.claims.values();
        for claimed in claims.flat_map(|(replica, prefiller)| [Some(*replica), *prefiller]) {
            if let Some(count) = claimed.and_then(|id| expected.get_mut(&id)) {
                *count += 1;
            }
        }
        let statuses = self.script.router.replicas(self.script.now);
        let counted: BTreeMap<u32, u32> = statuses
            .map(|status| (status.id.0, status.outstanding))
            .collect();
        prop_assert_eq!(counted, expected);
        prop_assert_eq!(self.script.stats().in_flight, self.claims.len());
        Ok(())
    }
}

proptest! {
    #[test]
    fn roles_hold_and_no_claim_is_lost(
        policy in 0..PolicyName::ALL.len(),
        push in prop_oneof![Just(Push::Blind), Just(Push::Pending), Just(Push::Outstanding { max: 2 })],
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut world = World::new(PolicyName::ALL[policy], push);
        for op in ops {
            world.forget(&op);
            world.run(op);
            world.check()?;
        }
        for id in 0..world.next {
            let op = Op::Abort(id);
            world.forget(&op);
            world.run(op);
            world.check()?;
        }
        prop_assert_eq!(world.script.stats().in_flight, 0);
    }
}
