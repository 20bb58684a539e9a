//! The search of the highest rate, on a replica whose rate is known.

mod support;

use core::time::Duration;

use isotherm_router::{PolicyName, Push, RouterConfig};
use isotherm_simulator::prompt::{Piece, Prompt};
use isotherm_simulator::workload::{Session, Workload};
use isotherm_simulator::{Balancing, Setup, capacity};

use support::{config, engine, step};

/// New prompts at an even rate.
fn even(rate: f64) -> Workload {
    let sessions = (0_u32..400).map(|number| {
        let id = u64::from(number) + 1;
        let prompt = Prompt::new([Piece { id, tokens: 512 }]);
        let mut asks = step(None, 0, prompt, 10_000 + id);
        asks.output_tokens = 1;
        Session {
            region: 0,
            key: id,
            follows: None,
            starts: Duration::from_secs_f64(f64::from(number) / rate),
            steps: vec![asks],
        }
    });
    Workload {
        sessions: sessions.collect(),
        ..Workload::default()
    }
}

#[test]
fn a_replica_bears_what_it_computes() {
    let config = RouterConfig {
        push: Push::Blind,
        ..config(PolicyName::LeastOutstanding)
    };
    let slo = Duration::from_secs(2);
    let highest = |replicas| {
        let setup = Setup::one_region(engine(), replicas, Balancing::Router(config.clone()));
        capacity(&setup, even, slo, 0.9)
    };
    // The preset, four prompts of 512 tokens in a step: 20 ms, the tokens, and the attention of each prompt.
    let step_s = 0.020 + 2_048.0 * 0.000_546 + 4.0 * 512.0 * 513.0 / 2.0 * 18e-9;
    let rate = 4.0 / step_s;
    let one = highest(1);
    // In 400 requests a little more than that does not pile up to two seconds yet.
    assert!(
        (0.97 * rate..1.06 * rate).contains(&one),
        "{one}, computed {rate}"
    );
    let two = highest(2);
    assert!(
        (1.9 * one..2.1 * one).contains(&two),
        "{two} of two, {one} of one"
    );
}
