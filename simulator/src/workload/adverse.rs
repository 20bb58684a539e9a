//! Workloads that differ from the standard ones, and pools that fail: what people run in fact.
//!
//! Contents of other densities, images, answers of thousands of tokens, adapters, a replica that is slow for a minute, one that
//! restarts silently, one without prefix caching, and pools of many sizes at the same load per replica. Each has its fleet, as the
//! standard workloads have.

use core::time::Duration;

use isotherm_engine::model::{AdapterConfig, Config, Preset};

use super::chat::Chat;
use super::content::ContentMix;
use super::generator::{Generator, OpenKind, conversation, open};
use super::reasoning::ReasoningChat;
use super::standard::Standard;
use crate::setup::{Action, Change, RegionSetup};

/// Sizes of the pools.
pub const POOLS: [usize; 4] = [8, 32, 128, 512];
/// Conversations at a time for each replica of a pool.
const POOL_CLIENTS: usize = 20;
/// Time in which clients of a pool send.
const POOL_DURATION: Duration = Duration::from_secs(120);

/// The part of its speed that a slow replica keeps, and for how long.
const SLOW_SPEED: f64 = 1.0 / 3.0;
const SLOW_TIME: Duration = Duration::from_secs(60);
/// When faults happen.
const FAULT_AT: Duration = Duration::from_secs(200);
/// Replica that has the fault.
const FAULTY: usize = 2;

/// The workloads, in the order of reports.
pub fn adverse() -> Vec<Standard> {
    let a100s = |config| vec![RegionSetup::new("one", config, 8)];
    let a100 = Preset::Llama31_8b2xA100.config();
    let slow = vec![
        fault(Duration::ZERO, speed(SLOW_SPEED)),
        fault(SLOW_TIME, speed(1.0)),
    ];
    let restart = vec![fault(Duration::ZERO, Action::Restart { replica: FAULTY })];
    let texts = of_content("texts", 0.0, conversation(8.0));
    let images = of_content("images", 0.4, chats("images"));
    let reasoning = Generator::Reasoning(ReasoningChat {
        clients: 192,
        duration: Duration::from_secs(600),
    });
    let bimodal = open(OpenKind::Bimodal, 4_000, 10.0);
    let adapters = open(OpenKind::Adapters, 4_000, 40.0);
    vec![
        standard("texts", texts, a100s(a100), Vec::new()),
        standard("images", images, l4s(8), Vec::new()),
        standard("reasoning", reasoning, a100s(a100), Vec::new()),
        standard("bimodal", bimodal, a100s(a100), Vec::new()),
        standard("adapters", adapters, a100s(with_slots(a100)), Vec::new()),
        standard("slow-replica", chats("slow-replica"), l4s(8), slow),
        standard("restart", chats("restart"), l4s(8), restart),
        standard("no-caching", chats("no-caching"), no_caching(), Vec::new()),
    ]
}

/// A pool of so many replicas, at the same load per replica whatever its size.
pub fn pool(replicas: usize) -> Standard {
    let name = match replicas {
        8 => "pool-8",
        32 => "pool-32",
        128 => "pool-128",
        512 => "pool-512",
        _ => "pool",
    };
    let chat = Chat {
        name,
        clients: vec![POOL_CLIENTS * replicas],
        duration: POOL_DURATION,
        ..Chat::arena()
    };
    standard(name, Generator::Chat(chat), l4s(replicas), Vec::new())
}

fn standard(
    name: &'static str,
    generator: Generator,
    regions: Vec<RegionSetup>,
    changes: Vec<Change>,
) -> Standard {
    Standard {
        changes,
        ..Standard::new(name, generator, regions)
    }
}

/// A workload with contents of several densities.
fn of_content(name: &'static str, image_share: f64, of: Generator) -> Generator {
    Generator::Mixed {
        of: Box::new(of),
        mix: ContentMix { name, image_share },
    }
}

/// People who chat, in one region, as many for a replica as in the three-region workload.
fn chats(name: &'static str) -> Generator {
    Generator::Chat(Chat {
        name,
        clients: vec![66],
        ..Chat::wildchat()
    })
}

fn l4s(replicas: usize) -> Vec<RegionSetup> {
    let config = Preset::Llama31_8bL4.config();
    vec![RegionSetup::new("one", config, replicas)]
}

/// Replicas with as many slots for adapters as people set, which take a third of a second to fill one.
fn with_slots(config: Config) -> Config {
    Config {
        adapters: AdapterConfig {
            slots: 4,
            load_ns: 300_000_000,
        },
        ..config
    }
}

/// Eight replicas, one of which was started without prefix caching.
fn no_caching() -> Vec<RegionSetup> {
    let mut regions = l4s(8);
    for region in &mut regions {
        if let Some(faulty) = region.replicas.get_mut(FAULTY) {
            faulty.has_prefix_caching = false;
        }
    }
    regions
}

const fn speed(speed: f64) -> Action {
    Action::Speed {
        replica: FAULTY,
        speed,
    }
}

fn fault(after: Duration, what: Action) -> Change {
    Change {
        at: FAULT_AT + after,
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pool_has_the_same_clients_for_a_replica() {
        for replicas in POOLS {
            let Generator::Chat(chat) = pool(replicas).generator else {
                panic!("a pool is of chats");
            };
            assert_eq!(chat.clients, [20 * replicas]);
            assert_eq!(pool(replicas).name, format!("pool-{replicas}"));
        }
    }

    #[test]
    fn a_shorter_run_keeps_the_length_of_its_fault() {
        let all = adverse();
        let slow = all.iter().find(|one| one.name == "slow-replica").unwrap();
        let short = slow.clone().scaled(0.25);
        let times: Vec<u64> = short.changes.iter().map(|one| one.at.as_secs()).collect();
        assert_eq!(times, [50, 110]);
    }
}
