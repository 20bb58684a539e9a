//! The demo's workload, scaled down, and what the standalone Envoy makes of it.

use std::time::Duration;

use isotherm_demo::mesh::{MeshRun, run_standalone};
use isotherm_demo::scenario::{DemoOptions, ReplicaOptions, Scenario, Scheme};
use isotherm_demo::workload::{Chat, OutputLength};
use isotherm_policies::PolicyName;
use tokio::sync::OnceCell;

const REPLICAS: u16 = 4;
const REQUESTS: u32 = 240;
/// Concurrent users: so few that no request waits for a replica: the hit ratio then depends on choices, not on the machine.
const USERS: usize = 8;
/// Factor by which everything runs faster than real time; the engines' time is then small.
const SPEEDUP: f64 = 20.0;
/// Shared system prompts. The engines hold each of them once, and not on every replica.
const APPLICATIONS: usize = 12;
const SYSTEM_TOKENS: (u32, u32) = (3_000, 6_000);
/// Length of each answer: so short that answers are a small share of the prompts, even where they pass through the service.
const ANSWER_TOKENS: u32 = 8;

/// The workload on fresh replicas, and the scheme of the demo.
pub(crate) fn scenario() -> anyhow::Result<(Scenario, Scheme)> {
    let options = DemoOptions {
        trace: None,
        requests: Some(REQUESTS),
        speedup: SPEEDUP,
        seed: 1,
        policy: vec![PolicyName::Isotherm],
        replicas: ReplicaOptions {
            push: None,
            replicas: REPLICAS,
        },
    };
    let mut scenario = options.scenario()?;
    let chat = Chat {
        applications: APPLICATIONS,
        system_tokens: SYSTEM_TOKENS,
        think_mean: Duration::from_secs(2),
        ..Chat::multi_turn(options.seed, usize::from(REPLICAS))
    };
    scenario.workload = chat.workload(REQUESTS as usize, USERS, SPEEDUP);
    for conversation in &mut scenario.workload.conversations {
        for turn in &mut conversation.turns {
            turn.answer = OutputLength::Exactly(ANSWER_TOKENS);
        }
    }
    Ok((scenario, options.replicas.scheme(PolicyName::Isotherm)))
}

/// The run on the standalone Envoy, which all tests of this program share.
pub(crate) async fn standalone() -> anyhow::Result<&'static MeshRun> {
    static RUN: OnceCell<MeshRun> = OnceCell::const_new();
    let (scenario, scheme) = scenario()?;
    RUN.get_or_try_init(|| run_standalone(&scenario, scheme))
        .await
}
