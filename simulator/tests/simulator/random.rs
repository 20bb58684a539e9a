//! Random fleets, networks, changes and workloads: whatever happens, every request ends once, in the right order, and the
//! run repeats itself. A failure names its seed.

use core::time::Duration;

use isotherm_policies::PolicyName;
use isotherm_router::{Push, QueueLimits, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Step, Workload};
use isotherm_simulator::{Action, Arrangement, Change, RegionSetup, ReplicaSetup, Setup, run};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::support::{config, engine, run_checked};

const SEEDS: u64 = 60;

fn replica(random: &mut SmallRng) -> ReplicaSetup {
    let mut replica = ReplicaSetup::new(engine());
    replica.speed = [0.5, 1.0, 2.0][random.random_range(0..3)];
    // Small pools are full soon, and short queues refuse.
    replica.config.blocks = [200, 2_120][random.random_range(0..2)];
    replica.has_prefix_caching = random.random_range(0..4) > 0;
    replica.config.waiting_max = [3, 1_000][random.random_range(0..2)];
    replica
}

fn arrangement(random: &mut SmallRng, regions: usize) -> Arrangement {
    let policy = PolicyName::ALL[random.random_range(0..PolicyName::ALL.len())];
    let pushes = [Push::Pending, Push::Outstanding { max: 3 }, Push::Blind];
    let config = RouterConfig {
        push: pushes[random.random_range(0..3)],
        queue: QueueLimits {
            length_max: [5, 1_000][random.random_range(0..2)],
            wait_max: Duration::from_secs([2, 30][random.random_range(0..2)]),
            ..QueueLimits::default()
        },
        ..config(policy)
    };
    match random.random_range(0..8) {
        0 => Arrangement::Oracle,
        1 => Arrangement::RegionLocal(config),
        2 => Arrangement::Central {
            config,
            region: random.random_range(0..regions),
        },
        _ => Arrangement::Router(config),
    }
}

fn setup(random: &mut SmallRng, seed: u64) -> Setup {
    let regions = random.random_range(1..4);
    let fleet = (0..regions).map(|region| RegionSetup {
        name: format!("region-{region}"),
        replicas: (0..random.random_range(1..4))
            .map(|_| replica(random))
            .collect(),
    });
    let fleet: Vec<RegionSetup> = fleet.collect();
    let replicas: usize = fleet.iter().map(|region| region.replicas.len()).sum();
    let changes = (0..random.random_range(0..6)).map(|_| Change {
        at: Duration::from_millis(random.random_range(0..20_000)),
        what: match random.random_range(0..5) {
            0 => Action::Join {
                region: random.random_range(0..regions),
                replica: replica(random),
            },
            1 => Action::Drain {
                replica: random.random_range(0..replicas),
            },
            2 => Action::Leave {
                replica: random.random_range(0..replicas),
            },
            3 => Action::Restart {
                replica: random.random_range(0..replicas),
            },
            _ => Action::Speed {
                replica: random.random_range(0..replicas),
                speed: [0.2, 3.0][random.random_range(0..2)],
            },
        },
    });
    let changes = changes.collect();
    let mut setup = Setup::regions(fleet, arrangement(random, regions));
    setup.seed = seed;
    setup.changes = changes;
    setup.network.between_regions = Duration::from_millis(random.random_range(0..120));
    setup
}

fn workload(random: &mut SmallRng) -> Workload {
    let sessions = (0..random.random_range(5..60)).map(|number: usize| {
        let mut steps: Vec<Step> = Vec::new();
        for index in 0..random.random_range(0..6) {
            let after = (index > 0).then(|| random.random_range(0..index));
            let before = match after {
                Some(after) => steps[after].prompt.with([steps[after].answer()]),
                None => Prompt::default(),
            };
            let id = random.random_range(0..2_000);
            // Some are longer than a small engine takes.
            let tokens = [20, 300, 4_000][random.random_range(0..3)];
            steps.push(Step {
                after,
                think: Duration::from_millis(random.random_range(0..2_000)),
                prompt: before.with([Piece::new(id, tokens)]),
                output_tokens: random.random_range(1..80),
                answer_id: 10_000 + u64::try_from(100 * number + index).unwrap(),
            });
        }
        let follows =
            (number > 3 && random.random_range(0..3) == 0).then(|| random.random_range(0..number));
        let (region, key) = (random.random_range(0..4), random.random_range(0..20));
        let starts = Duration::from_millis(random.random_range(0..15_000));
        Session {
            region,
            follows,
            ..Session::new(key, starts, steps)
        }
    });
    Workload {
        name: "random".into(),
        sessions: sessions.collect(),
        warmup_requests: 3,
        sends_until: (random.random_range(0..3) == 0).then_some(Duration::from_secs(12)),
    }
}

#[test]
fn every_request_ends_once_under_random_changes() {
    let (mut answered, mut refused, mut forwarded) = (0, 0, 0);
    for seed in 0..SEEDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let setup = setup(&mut random, seed);
        let workload = workload(&mut random);
        let outcome = run_checked(&format!("seed {seed}"), &setup, &workload);
        let local = matches!(setup.arrangement, Arrangement::RegionLocal(_));
        let crossed = outcome.requests.iter().filter(|request| request.forwarded);
        let crossed = crossed.count();
        assert!(!local || crossed == 0, "seed {seed}: nothing is forwarded");
        if seed % 10 == 0 {
            let again = run(&setup, &workload);
            assert_eq!(outcome, again, "seed {seed} repeats itself");
        }
        let of_run = outcome.requests.iter().filter(|r| r.is_answered()).count();
        answered += of_run;
        refused += outcome.requests.len() - of_run;
        forwarded += crossed;
    }
    // What the checks are about did happen.
    assert!(
        answered > 2_000 && refused > 100 && forwarded > 100,
        "{answered} {refused} {forwarded}"
    );
}
