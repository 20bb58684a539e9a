//! Scenarios in which one event could make the router do much at once: 1,000 replicas, and 10,000 requests that wait.
//!
//! A scenario is prepared, and then gives its events one by one. The same policy gives the same events each time, so that a
//! bench may run a scenario repeatedly, and compare the times of one and the same step.

mod pools;

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{Event, ReplicaId, RouterConfig};

use crate::load::Load;

/// Replicas of a pool, and requests that wait for them.
const REPLICAS: u32 = 1_000;
const WAITING: usize = 10_000;
/// Memory for indexes: the default of the service.
const INDEX_BYTES: usize = 256 << 20;
/// Events of the scenarios that repeat one event.
const REPEATED: u32 = 200;
/// Sessions of the scenario that fills the tables of sessions and answers to their bounds.
const SESSIONS: u32 = 400_000;

/// An input of a router.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a scenario has few configurations among its inputs"
)]
pub enum Input {
    /// An event, after some time.
    Event(Duration, Event),
    /// Another configuration.
    Configuration(RouterConfig),
}

impl Input {
    const fn now(event: Event) -> Self {
        Self::Event(Duration::ZERO, event)
    }
}

/// One scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name in tables and on command lines.
    pub name: &'static str,
    prepare: fn(PolicyName) -> Load,
    /// The input with this number; `None` behind the last one.
    input: fn(&mut Load, u32) -> Option<Input>,
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 16] = [
    scenario("a request ends", pools::waiting, |load, n| {
        let id = load.oldest_running().filter(|_| n < REPEATED)?;
        Some(Input::now(pools::answered(id, None)))
    }),
    scenario("a request arrives", pools::waiting, |load, n| {
        let request = load.request(crate::Kind::Mixed);
        (n < REPEATED).then(|| Input::now(Event::Arrived(request)))
    }),
    scenario(
        "a waiting request is cancelled",
        pools::waiting,
        |load, n| {
            let id = load.last_request().0 - 20 * u64::from(n);
            let event = Event::Aborted(isotherm_router::RequestId(id));
            (n < REPEATED).then(|| Input::now(event))
        },
    ),
    scenario(
        "all waiting requests pass the SLO",
        pools::waiting,
        |load, n| {
            let request = load.request(crate::Kind::Mixed);
            let event = Event::Arrived(request);
            (n == 0).then_some(Input::Event(Duration::from_secs(6), event))
        },
    ),
    scenario("all waiting requests expire", pools::waiting, |load, n| {
        let request = load.request(crate::Kind::Mixed);
        let event = Event::Arrived(request);
        (n == 0).then_some(Input::Event(Duration::from_secs(31), event))
    }),
    scenario("the service shuts down", pools::waiting, |_, n| {
        (n == 0).then_some(Input::now(Event::Shutdown))
    }),
    scenario("200 replicas are removed", pools::declined, |_, n| {
        (n < 200).then(|| Input::now(Event::Removed(ReplicaId(n))))
    }),
    scenario(
        "a replica of an adapter is removed",
        pools::with_adapter,
        |_, n| (n < 2).then(|| Input::now(Event::Removed(ReplicaId(n)))),
    ),
    scenario(
        "all probes fail, and then not",
        pools::blind,
        |load, n| match n {
            0..REPLICAS => Some(Input::now(Event::ProbeFailed(ReplicaId(n)))),
            REPLICAS => Some(Input::now(load.probe(n % REPLICAS, None))),
            _ => None,
        },
    ),
    scenario("a replica restarts", pools::with_sessions, |load, n| {
        let event = pools::started(ReplicaId(0), 1_000_000, load.now());
        (n == 0).then_some(Input::now(event))
    }),
    scenario(
        "a replica tells of a smaller cache",
        pools::with_sessions,
        |load, n| (n == 0).then(|| Input::now(load.probe(0, Some(10_000)))),
    ),
    scenario("the first peer is added", pools::with_sessions, |_, n| {
        (n == 0).then(|| Input::now(pools::peer_added()))
    }),
    scenario(
        "the memory for indexes shrinks",
        pools::with_sessions,
        |load, n| {
            let config = pools::config_of(load.policy(), INDEX_BYTES / 4);
            (n == 0).then_some(Input::Configuration(config))
        },
    ),
    scenario("the policy changes", pools::waiting, |load, n| {
        let other = if load.policy() == PolicyName::DualMap.into() {
            PolicyName::Isotherm
        } else {
            PolicyName::DualMap
        };
        let config = pools::config_of(other, INDEX_BYTES);
        (n == 0).then_some(Input::Configuration(config))
    }),
    scenario("a peer has room for all", pools::forwardable, |load, n| {
        (n == 0).then(|| Input::now(load.heartbeat_event(0)))
    }),
    scenario("sessions and answers fill up", pools::empty, |load, n| {
        (n < 2 * SESSIONS).then(|| Input::now(pools::short_turn(load, n)))
    }),
];

const fn scenario(
    name: &'static str,
    prepare: fn(PolicyName) -> Load,
    input: fn(&mut Load, u32) -> Option<Input>,
) -> Scenario {
    Scenario {
        name,
        prepare,
        input,
    }
}

impl Scenario {
    /// A pool at the beginning of the scenario.
    #[must_use]
    pub fn prepare(&self, policy: PolicyName) -> Load {
        (self.prepare)(policy)
    }

    /// The input with this number; `None` behind the last one.
    pub fn input(&self, load: &mut Load, number: u32) -> Option<Input> {
        (self.input)(load, number)
    }
}
