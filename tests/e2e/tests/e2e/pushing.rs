//! Selective pushing: which replicas admit the next request, on scripted replicas and on engines with queues of their own.

use std::time::Duration;

use futures_util::future::try_join_all;
use isotherm_e2e::{
    Action, Client, MODEL, ScriptedReplica, admin, chat, permit, scripted, with_long_timeouts,
};
use isotherm_harness::{EngineOptions, Pool, Stack};
use serde_json::json;

/// The first probe admits two requests. The third follows as soon as a response begins, since the next probe is a minute away.
#[tokio::test]
async fn a_response_that_begins_admits_the_next_request_without_a_probe() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Stream);
    let stack = scripted("began", &[&replica], 1)
        .service(|config| {
            config.set("pools/0/push", "pending")?;
            let probe = json!({ "interval_ms": 60_000 });
            config.set("pools/0/probe", probe)
        })
        .start()
        .await?;
    stack.envoy().wait_for_decision_streams(3).await?;
    let client = Client::new(&stack.url(""))?;
    let chats: Vec<_> = (0..3)
        .map(|number| client.spawn_chat(&format!("number {number}")))
        .collect();
    replica.wait_until_holding(3).await?;
    replica.release_all();
    for chat in chats {
        assert_eq!(chat.await??.status, 200);
    }
    Ok(())
}

const ENGINES: usize = 3;
const BATCH: usize = 4;
const BURST: usize = 48;

/// Sends the same burst of requests with one prefix, with and without selective pushing. The measure is the longest time
/// in which one engine had more than one request waiting while another was idle. The test compares two such times, since a
/// busy machine stretches both.
#[tokio::test]
async fn only_selective_pushing_keeps_requests_from_waiting_beside_an_idle_engine()
-> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;

    let pending = longest_imbalance("pending").await?;
    let blind = longest_imbalance("blind").await?;

    println!("longest wait beside an idle engine: {pending:?} with pending, {blind:?} with blind");
    assert!(
        pending * 3 < blind,
        "pending: {pending:?}, blind: {blind:?}"
    );
    Ok(())
}

async fn longest_imbalance(push: &str) -> anyhow::Result<Duration> {
    let engine = EngineOptions {
        speed: 4.0,
        arguments: vec![format!("--sequences-max={BATCH}")],
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(ENGINES).engine(engine).push(push);
    let stack = Stack::builder(&format!("push-{push}")).pool(pool);
    let stack = with_long_timeouts(stack).start().await?;
    let client = Client::new(&stack.url(""))?;
    let prefix = "All of these requests begin with the same words. ".repeat(40);
    let burst = (0..BURST).map(|number| {
        let mut body = chat(&format!("{prefix} Number {number}."));
        body["max_tokens"] = json!(60);
        body["ignore_eos"] = json!(true);
        let client = client.clone();
        async move { client.chat(&format!("session-{number}"), &body).await }
    });
    for response in try_join_all(burst).await? {
        assert_eq!(response.status, 200, "{}", response.text());
    }
    let queued = admin::pool_number(stack.service(), "counters/queued").await?;
    assert_eq!(
        queued > 0,
        push == "pending",
        "{queued} requests were queued"
    );

    let mut changes = Vec::new();
    for (index, engine) in stack.engines().enumerate() {
        let load = engine.load().await?;
        assert_eq!(load["changes_forgotten"], 0);
        for change in load["changes"].as_array().into_iter().flatten() {
            let number = |index: usize| change[index].as_u64().unwrap_or_default();
            let (waiting, running) = (number(1) + number(3), number(2));
            changes.push((number(0), index, EngineLoad { waiting, running }));
        }
    }
    changes.sort_by_key(|(unix_ms, ..)| *unix_ms);
    Ok(longest(&changes))
}

#[derive(Clone, Copy, Debug, Default)]
struct EngineLoad {
    waiting: u64,
    running: u64,
}

/// The longest uninterrupted time in which one engine had more than one request waiting while another was idle.
fn longest(changes: &[(u64, usize, EngineLoad)]) -> Duration {
    let mut loads = [EngineLoad::default(); ENGINES];
    let mut since = [None::<u64>; ENGINES];
    let mut longest_ms = 0;
    for &(unix_ms, engine, load) in changes {
        loads[engine] = load;
        let is_idle = |load: &EngineLoad| load.waiting == 0 && load.running == 0;
        for (load, since) in loads.iter().zip(&mut since) {
            if load.waiting > 1 && loads.iter().any(is_idle) {
                let start = *since.get_or_insert(unix_ms);
                longest_ms = longest_ms.max(unix_ms.saturating_sub(start));
            } else if let Some(start) = since.take() {
                longest_ms = longest_ms.max(unix_ms.saturating_sub(start));
            }
        }
    }
    Duration::from_millis(longest_ms)
}

#[test]
fn the_longest_imbalance_is_measured_from_change_to_change() {
    let load = |waiting, running| EngineLoad { waiting, running };
    let changes = [
        (0, 0, load(2, 1)), // the others are idle
        (100, 0, load(3, 1)),
        (300, 1, load(0, 1)),
        (400, 2, load(0, 1)), // no engine is idle
        (500, 1, load(0, 0)),
        (600, 0, load(1, 4)), // one request may wait
    ];
    assert_eq!(longest(&changes), Duration::from_millis(400));
}
