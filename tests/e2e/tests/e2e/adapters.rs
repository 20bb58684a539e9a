//! Adapters: a request goes to a replica that lists its adapter, and mostly to one that holds it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{
    Client, HttpResponse, MODEL, WAIT_MAX, admin, chat, permit, send, with_decision_header,
    with_long_timeouts,
};
use isotherm_harness::{EngineOptions, Pool, Stack, wait_for};
use reqwest::Method;
use serde_json::{Value, json};

/// No multiple of the engines: else `round_robin` could bring each adapter to the same engine in every round.
const ADAPTERS: [&str; 5] = ["a0", "a1", "a2", "a3", "a4"];
/// Engines that list every adapter; one more lists none.
const LISTERS: usize = 3;
const ROUNDS: usize = 8;

/// Three engines that list five adapters and hold two each, and one engine without adapters.
async fn start(name: &str, policy: &str) -> anyhow::Result<Stack> {
    let mut pool = Pool::new(MODEL).replicas(LISTERS + 1).policy(policy);
    pool = pool.engine(EngineOptions {
        speed: 5.0,
        ..EngineOptions::default()
    });
    let adapters = ADAPTERS.map(|adapter| ["--adapter", adapter]).concat();
    let limits = ["--adapter-slots", "2", "--adapter-load-ms", "1500"];
    for number in 0..LISTERS {
        pool = pool.arguments_of(number, &[&adapters[..], &limits].concat());
    }
    let stack = with_long_timeouts(Stack::builder(name).pool(pool));
    with_decision_header(stack).start().await
}

/// A short request for an adapter, in a session of its own: neither a prefix nor a session says where to go.
async fn ask(client: &Client, adapter: &str, number: usize) -> anyhow::Result<HttpResponse> {
    let mut body = chat(&format!("question {number} for {adapter}"));
    body["model"] = json!(adapter);
    body["max_tokens"] = json!(8);
    let session = format!("{adapter}-{number}");
    let response = send(client.post_chat(&body).header("x-session-id", session)).await?;
    response.success()
}

/// Sends rounds of one request for each adapter, all of a round at once. Returns the replicas that served each adapter.
async fn serve(stack: &Stack) -> anyhow::Result<BTreeMap<String, BTreeSet<SocketAddr>>> {
    let client = Client::new(&stack.url(""))?;
    let mut served: BTreeMap<String, BTreeSet<SocketAddr>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let requests = ADAPTERS.map(|adapter| {
            let client = client.clone();
            tokio::spawn(async move { ask(&client, adapter, round).await })
        });
        for (adapter, request) in ADAPTERS.iter().zip(requests) {
            let response = request.await??;
            let replica = response.decision("replica").context("no decision")?;
            served
                .entry((*adapter).to_owned())
                .or_default()
                .insert(replica.parse()?);
        }
    }
    Ok(served)
}

async fn loads(stack: &Stack) -> anyhow::Result<u64> {
    let mut loads = 0;
    for number in 0..=LISTERS {
        let load = stack.engine(number)?.load().await?;
        loads += load["adapter_loads"].as_u64().unwrap_or_default();
    }
    Ok(loads)
}

#[tokio::test]
async fn requests_for_an_adapter_stay_on_few_replicas_that_list_it() -> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let stack = start("adapters", "isotherm").await?;
    let without = stack.engine(LISTERS)?.address();

    let served = serve(&stack).await?;

    for (adapter, replicas) in &served {
        ensure!(!replicas.contains(&without), "{adapter} went to {without}");
    }
    let places: usize = served.values().map(BTreeSet::len).sum();
    ensure!(places <= 2 * ADAPTERS.len(), "{served:?}");
    let warm = loads(&stack).await?;
    drop(stack);

    let stack = start("adapters-in-turn", "round_robin").await?;
    let without = stack.engine(LISTERS)?.address();
    let served = serve(&stack).await?;
    for (adapter, replicas) in &served {
        ensure!(!replicas.contains(&without), "{adapter} went to {without}");
    }
    let in_turn = loads(&stack).await?;
    println!(
        "loads of {} requests: {warm}, in turn {in_turn}",
        ROUNDS * ADAPTERS.len()
    );
    ensure!(2 * warm < in_turn, "{warm} loads, {in_turn} in turn");
    Ok(())
}

#[tokio::test]
async fn adapters_are_listed_explained_and_counted() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = start("adapters-listed", "isotherm").await?;
    let client = Client::new(&stack.url(""))?;
    ask(&client, "a1", 0).await?;

    let models: Value = client.get("/v1/models").send().await?.json().await?;
    let cards = models["data"].as_array().context("no list")?;
    let adapter = cards.iter().find(|card| card["id"] == "a1");
    ensure!(
        adapter.is_some_and(|card| card["parent"] == MODEL),
        "{models}"
    );

    let mut body = chat("another question");
    body["model"] = json!("a1");
    let request = json!({ "path": "/v1/chat/completions", "body": body });
    let service = stack.service();
    let explained = service
        .admin_request(Method::POST, "/api/explain", Some(&request))
        .await?;
    let candidates = explained["candidates"].as_array().context("no list")?;
    ensure!(candidates.len() == LISTERS, "{explained}");
    let states: Vec<_> = candidates.iter().map(|c| c["adapter"].clone()).collect();
    ensure!(states[0] == "loaded", "{states:?}");
    ensure!(states[1] == "free_slot", "{states:?}");

    let holder = candidates[0]["replica"].as_str().context("no replica")?;
    let replica = wait_for(WAIT_MAX, "the slots of the replica", || async {
        let replica = admin::replica(service, holder.parse()?).await?;
        Ok((replica["adapters"]["slots"] == 2).then_some(replica))
    })
    .await?;
    ensure!(replica["adapters"]["loaded"] == json!(["a1"]), "{replica}");
    ensure!(
        replica["adapters"]["listed"] == json!(ADAPTERS),
        "{replica}"
    );
    let count = admin::counter(service, "isotherm_adapter_loads_total", &[]).await?;
    ensure!(count == 1, "{count} loads");

    let unknown = ask(&client, "a9", 0).await;
    ensure!(unknown.is_err_and(|error| error.to_string().contains("404")));
    Ok(())
}
