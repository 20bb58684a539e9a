//! Units of work whose instructions are counted: the same work each time, small enough for an interpreter.
//!
//! A unit is prepared, runs once to finish one-time work, and then runs once for the count.

use core::hint::black_box;
use std::collections::VecDeque;

use isotherm_fingerprint::Fingerprint;
use isotherm_policies::PolicyName;
use isotherm_router::{End, Request};

use crate::body;
use crate::load::{Kind, Load, config};

/// Repetitions of a unit that is one decision: they average over positions in the hash table.
const DECISIONS: usize = 200;

/// A unit that is ready to run repeatedly.
pub type Work = Box<dyn FnMut()>;

/// One unit.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    /// Name in tables and on command lines.
    pub name: &'static str,
    /// Length of the body that one run reads, in bytes.
    bytes: Option<usize>,
    prepare: fn() -> Work,
}

/// All units.
pub const UNITS: [Unit; 15] = [
    extract("extract-4-kb", 4 << 10, || reading(4 << 10)),
    extract("extract-64-kb", 64 << 10, || reading(64 << 10)),
    extract("extract-400-kb", 400 << 10, || reading(400 << 10)),
    unit("header-encode", || {
        let fingerprint = long_prompt();
        Box::new(move || {
            black_box(black_box(&fingerprint).encode());
        })
    }),
    unit("header-decode", || {
        let header = long_prompt().encode();
        Box::new(move || {
            let _ = black_box(Fingerprint::decode(black_box(header.as_bytes())));
        })
    }),
    unit("decide-turn", || deciding(1 << 30, 100, 20_000, Kind::Turn)),
    unit("decide-new", || deciding(1 << 30, 100, 20_000, Kind::New)),
    unit("decide-turn-1000-replicas", || {
        deciding(1 << 30, 1_000, 20_000, Kind::Turn)
    }),
    unit("decide-new-evicting", || {
        deciding(1 << 20, 100, usize::MAX, Kind::New)
    }),
    unit("decide-isotherm", || {
        let load = Load::new(config(PolicyName::Isotherm, 1 << 30), 100, 20_000);
        repeated(load, Kind::Mixed, decide)
    }),
    unit("decide-isotherm-tiers", || {
        let config = config(PolicyName::Isotherm, 1 << 30);
        let load = Load::in_tiers(config, 100, 20_000, 1_000);
        repeated(load, Kind::Mixed, decide)
    }),
    unit("queue-isotherm", || {
        let load = Load::waiting(PolicyName::Isotherm, 100, 10_000);
        repeated(load, Kind::Mixed, finish_and_decide)
    }),
    unit("queue-isotherm-tiers", || {
        let load = Load::waiting_in_tiers(PolicyName::Isotherm, 100, 10_000, 1_000);
        repeated(load, Kind::Mixed, finish_and_decide)
    }),
    unit("queue-10000", || {
        repeated(
            Load::waiting(PolicyName::PrefixTree, 100, 10_000),
            Kind::Mixed,
            finish_and_decide,
        )
    }),
    unit("heartbeat-50-peers", || {
        let mut load = Load::full(PolicyName::PrefixTree, 10, 50, 1_000);
        Box::new(move || {
            for peer in 0..50 {
                load.pass(1_000);
                load.heartbeat(peer);
            }
        })
    }),
];

impl Unit {
    /// The unit of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        UNITS.into_iter().find(|unit| unit.name == name)
    }

    /// Bytes that one run reads, if it reads any.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        self.bytes.map(|bytes| body::chat(bytes).len())
    }

    /// Prepares the unit, and runs it once.
    #[must_use]
    pub fn ready(&self) -> Work {
        let mut work = (self.prepare)();
        work();
        work
    }
}

const fn unit(name: &'static str, prepare: fn() -> Work) -> Unit {
    Unit {
        name,
        bytes: None,
        prepare,
    }
}

const fn extract(name: &'static str, bytes: usize, prepare: fn() -> Work) -> Unit {
    Unit {
        name,
        bytes: Some(bytes),
        prepare,
    }
}

fn reading(bytes: usize) -> Work {
    let (body, wanted) = (body::chat(bytes), body::wanted());
    Box::new(move || {
        black_box(body::extract(black_box(&body), &wanted));
    })
}

fn long_prompt() -> Fingerprint {
    body::extract(&body::chat(400 << 10), &body::wanted()).fingerprint
}

fn deciding(index_bytes_max: usize, replicas: u32, nodes: usize, kind: Kind) -> Work {
    let config = config(PolicyName::PrefixTree, index_bytes_max);
    repeated(Load::new(config, replicas, nodes), kind, decide)
}

fn finish_and_decide(load: &mut Load, request: Request) {
    load.finish(End::Answered);
    black_box(load.decide(request));
}

fn decide(load: &mut Load, request: Request) {
    black_box(load.decide(request));
    load.settle(End::Answered);
}

/// A unit of many requests, which are created before it runs: enough for the first run and for the counted run.
fn repeated(mut load: Load, kind: Kind, each: fn(&mut Load, Request)) -> Work {
    let mut requests: VecDeque<Request> = (0..2 * DECISIONS).map(|_| load.request(kind)).collect();
    Box::new(move || {
        for _ in 0..DECISIONS {
            let request = requests.pop_front().unwrap_or_else(|| load.request(kind));
            each(&mut load, request);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_runs_twice_and_has_a_name_of_its_own() {
        for unit in UNITS {
            let found = Unit::named(unit.name).unwrap();
            assert_eq!(found.bytes(), unit.bytes());
            found.ready()();
        }
        assert!(Unit::named("no such unit").is_none());
    }
}
