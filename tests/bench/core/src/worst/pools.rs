//! Pools at the beginning of a scenario, and the events that make them.

use isotherm_fingerprint::Fingerprint;
use isotherm_policies::PolicyName;
use isotherm_router::{
    AdapterKey, End, EngineCounters, Event, PeerId, PolicyFactory, Push, QueueLimits, ReplicaId,
    Request, RequestId, RouterConfig, Scope, ServedBy, Time,
};

use super::{INDEX_BYTES, REPLICAS, SESSIONS, WAITING};
use crate::load::{Kind, Load, config};

/// Replicas that list the adapter of all waiting requests.
const LISTERS: u32 = 100;
/// Prompts that one replica holds alone, each of about 120 blocks.
const PROMPTS_OF_ONE: u32 = 1_500;

/// Configuration with the service's bounds of waits and of memory, and replicas that take one request each.
pub(super) fn config_of(policy: impl Into<PolicyFactory>, index_bytes_max: usize) -> RouterConfig {
    RouterConfig {
        push: Push::Outstanding { max: 1 },
        queue: QueueLimits {
            length_max: 1_000_000,
            ..RouterConfig::default().queue
        },
        ..config(policy, index_bytes_max)
    }
}

/// A pool without requests.
pub(super) fn empty(policy: PolicyName) -> Load {
    let mut load = Load::new(config_of(policy, INDEX_BYTES), REPLICAS, 0);
    for replica in 0..REPLICAS {
        let probe = load.probe(replica, None);
        load.handle(probe);
    }
    load.take_effects();
    load
}

/// A full pool.
pub(super) fn waiting(policy: PolicyName) -> Load {
    fill(empty(policy))
}

/// Lets requests arrive until so many wait.
fn fill(mut load: Load) -> Load {
    while load.stats().queue_length < WAITING {
        let request = load.request(Kind::Mixed);
        load.decide(request);
        load.take_effects();
    }
    load
}

/// A full pool in which some replicas became free, and requests that wait for others declined them.
pub(super) fn declined(policy: PolicyName) -> Load {
    let mut load = waiting(policy);
    for _ in 0..20 {
        if let Some(id) = load.oldest_running() {
            load.handle(answered(id, None));
            load.take_effects();
        }
    }
    load
}

/// A full pool whose requests all name one adapter, which a tenth of the replicas lists.
pub(super) fn with_adapter(policy: PolicyName) -> Load {
    let mut load = empty(policy);
    let adapter = AdapterKey(7);
    for replica in 0..LISTERS {
        load.handle(Event::AdaptersListed {
            replica: ReplicaId(replica),
            adapters: vec![adapter],
        });
    }
    load.set_adapter(adapter);
    fill(load)
}

/// A full pool that is probed, but dispatches without regard to probes.
pub(super) fn blind(policy: PolicyName) -> Load {
    let mut load = Load::new(
        RouterConfig {
            push: Push::Blind,
            ..config_of(policy, INDEX_BYTES)
        },
        REPLICAS,
        0,
    );
    for replica in 0..REPLICAS {
        let probe = load.probe(replica, None);
        load.handle(probe);
    }
    load.take_effects();
    load
}

/// A full pool with full tables of sessions and answers, in which one replica holds many prompts.
pub(super) fn with_sessions(policy: PolicyName) -> Load {
    let mut load = empty(policy);
    load.handle(started(ReplicaId(0), 1, load.now()));
    for session in 0..SESSIONS {
        let request = load.asks(u64::from(session), Fingerprint::default(), 20);
        serve(&mut load, request);
    }
    for _ in 0..PROMPTS_OF_ONE {
        let mut request = load.request(Kind::New);
        request.subset = Some([ReplicaId(0)].into());
        serve(&mut load, request);
    }
    fill(load)
}

/// Dispatches and ends a request.
fn serve(load: &mut Load, request: Request) {
    let id = request.id;
    load.handle(Event::Arrived(request));
    load.handle(answered(id, Some(20)));
    load.take_effects();
}

/// A full pool whose requests may all leave for a peer that has no room yet.
pub(super) fn forwardable(policy: PolicyName) -> Load {
    let mut load = empty(policy);
    load.set_scope(Scope::Regions {
        tried: smallvec::SmallVec::new(),
    });
    load.handle(peer_added());
    fill(load)
}

pub(super) fn peer_added() -> Event {
    Event::PeerAdded {
        peer: PeerId(0),
        name: "region-0".into(),
    }
}

/// An engine reports counters of a process that started then.
pub(super) fn started(replica: ReplicaId, started_ms: u64, sent: Time) -> Event {
    Event::CountersReported {
        replica,
        counters: EngineCounters {
            started_ms: Some(started_ms),
            prompt_tokens: Some(1.0),
            ..EngineCounters::default()
        },
        sent,
    }
}

/// The answer to a request ends.
pub(super) fn answered(id: RequestId, completion_tokens: Option<u32>) -> Event {
    Event::Finished {
        id,
        served_by: ServedBy::Unreported,
        end: End::Answered,
        ttft_us: None,
        prompt_tokens: None,
        cached_tokens: None,
        completion_tokens,
    }
}

/// In turn: a short request of a new session, and its answer.
pub(super) fn short_turn(load: &mut Load, n: u32) -> Event {
    if n.is_multiple_of(2) {
        Event::Arrived(load.asks(u64::from(n), Fingerprint::default(), 20))
    } else {
        answered(load.last_request(), Some(20))
    }
}
