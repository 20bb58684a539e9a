//! How fast the simulator itself is. Run it with
//! `cargo test --release -p isotherm-simulator --test simulator speed -- --ignored --nocapture`.

use core::time::Duration;

use isotherm_engine::model::Preset;
use isotherm_policies::PolicyName;
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{RequestClass, Session, Step, Workload};
use isotherm_simulator::{Arrangement, Setup, run};

use crate::support::config;

const REPLICAS: usize = 64;
const TURNS: u64 = 4;
/// Requests a second, over all replicas.
const RATE: u64 = 320;

/// Conversations of four turns, of about 1,200 tokens in the end, with answers of 40 to 360 tokens.
fn conversations(requests: u64) -> Workload {
    let sessions = (0..requests / TURNS).map(|client| {
        let mut prompt = Prompt::new([Piece::new(client % 10, 300)]);
        let mut steps: Vec<Step> = Vec::new();
        for turn in 0..TURNS {
            let id = 1_000 + 100 * client + 2 * turn;
            let answered = steps.last().map(Step::answer);
            let asked = Piece::new(id, 60);
            prompt = prompt.with(answered.into_iter().chain([asked]));
            steps.push(Step {
                after: steps.len().checked_sub(1),
                think: Duration::from_secs(10),
                prompt: prompt.clone(),
                output_tokens: 40 + (id * 2_654_435_761 % 320) as u32,
                answer_id: id + 1,
            });
        }
        Session {
            region: 0,
            key: client,
            follows: None,
            starts: Duration::from_millis(1_000 * TURNS * client / RATE),
            adapter: None,
            class: RequestClass::default(),
            steps,
        }
    });
    Workload {
        name: "conversations".into(),
        sessions: sessions.collect(),
        ..Workload::default()
    }
}

/// The time that this thread has had on a core: others on the machine do not count.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = text.split(' ').next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

#[test]
#[ignore = "takes minutes, and measures nothing in a debug build"]
fn a_million_requests_over_64_replicas_take_less_than_two_minutes() {
    let requests = std::env::var("REQUESTS").map_or(1_000_000, |text| text.parse().unwrap());
    let workload = conversations(requests);
    let engine = Preset::Llama31_8b2xA100.config();
    let policy =
        std::env::var("POLICY").map_or(PolicyName::PrefixTree, |name| name.parse().unwrap());
    let setup = Setup::one_region(engine, REPLICAS, Arrangement::Router(config(policy)));
    let start = cpu_time();
    let outcome = run(&setup, &workload);
    let took = cpu_time() - start;
    println!(
        "{policy}: {} requests, {} events in {took:.1?} ({:.1} us a request); {:?}",
        outcome.requests.len(),
        outcome.events,
        took.as_secs_f64() * 1e6 / requests as f64,
        outcome.summary(setup.slo)
    );
    assert_eq!(outcome.requests.len() as u64, requests);
    assert!(took < Duration::from_secs(120));
}
