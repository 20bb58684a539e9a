//! Selective pushing, on engines with queues of their own.

use std::time::Duration;

use futures_util::future::try_join_all;
use isotherm_e2e::{Client, MODEL, admin, chat, permit, with_long_timeouts};
use isotherm_harness::{EngineOptions, Pool, Stack};
use serde_json::{Value, json};

const PROBE_INTERVAL_MS: u64 = 200;
const ENGINES: usize = 3;
const BATCH: usize = 4;
const BURST: usize = 48;

/// The same burst of requests with the same beginning, with and without selective pushing. What is asked: for how long
/// does an engine let more than one request wait while another engine has nothing to do?
#[tokio::test]
async fn only_with_selective_pushing_nobody_waits_at_an_engine_while_another_is_idle()
-> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let allowed = Duration::from_millis(2 * PROBE_INTERVAL_MS);

    let pending = longest_waste("pending").await?;
    let blind = longest_waste("blind").await?;

    println!(
        "an engine was idle beside another's queue for {pending:?} with pending, {blind:?} with blind"
    );
    assert!(pending <= allowed, "pending: {pending:?}");
    assert!(
        blind > allowed,
        "blind: {blind:?}, so this test proves nothing"
    );
    Ok(())
}

async fn longest_waste(push: &str) -> anyhow::Result<Duration> {
    let engine = EngineOptions {
        speed: 10.0,
        arguments: vec![format!("--sequences-max={BATCH}")],
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(ENGINES).engine(engine).push(push);
    let stack = with_long_timeouts(Stack::builder(&format!("push-{push}")).pool(pool))
        .service(|config| config.set("pools/0/probe", json!({ "interval_ms": PROBE_INTERVAL_MS })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let beginning = "All of these requests begin with the same words. ".repeat(40);
    let burst = (0..BURST).map(|number| {
        let mut body = chat(&format!("{beginning} Number {number}."));
        body["max_tokens"] = json!(60);
        body["ignore_eos"] = json!(true);
        let client = client.clone();
        async move { client.chat(&format!("session-{number}"), &body).await }
    });
    for answer in try_join_all(burst).await? {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let queued = admin::pool_number(stack.service(), "counters/queued").await?;
    assert_eq!(
        queued > 0,
        push == "pending",
        "{queued} requests waited in the service"
    );

    let mut changes = Vec::new();
    for (index, engine) in stack.engines().enumerate() {
        let load: Value = reqwest::get(engine.url("/debug/load"))
            .await?
            .json()
            .await?;
        assert_eq!(load["changes_forgotten"], 0);
        for change in load["changes"].as_array().into_iter().flatten() {
            let number = |index: usize| change[index].as_u64().unwrap_or_default();
            let (waiting, running) = (number(1) + number(3), number(2));
            changes.push((number(0), index, Load { waiting, running }));
        }
    }
    changes.sort_by_key(|(unix_ms, ..)| *unix_ms);
    Ok(longest(&changes))
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    waiting: u64,
    running: u64,
}

/// The longest time without a break in which one engine had more than one request waiting and another had none at all.
fn longest(changes: &[(u64, usize, Load)]) -> Duration {
    let mut loads = [Load::default(); ENGINES];
    let mut since = [None::<u64>; ENGINES];
    let mut longest_ms = 0;
    for &(unix_ms, engine, load) in changes {
        loads[engine] = load;
        let is_idle = |load: &Load| load.waiting == 0 && load.running == 0;
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
fn the_longest_waste_is_measured_from_change_to_change() {
    let load = |waiting, running| Load { waiting, running };
    let changes = [
        (0, 0, load(2, 1)), // the others are idle
        (100, 0, load(3, 1)),
        (300, 1, load(0, 1)),
        (400, 2, load(0, 1)), // now nobody is
        (500, 1, load(0, 0)),
        (600, 0, load(1, 4)), // one may wait
    ];
    assert_eq!(longest(&changes), Duration::from_millis(400));
}
