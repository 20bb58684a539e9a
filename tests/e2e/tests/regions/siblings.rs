//! Several services of one region, over which Envoy spreads the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use isotherm_e2e::load::check_all_succeeded;
use isotherm_e2e::{
    Client, Load, MODEL, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted, send,
    with_long_timeouts,
};
use isotherm_harness::{EngineOptions, Pool, Stack, envoy, wait_for};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::conversation::request_of_turn;

const SESSIONS: usize = 24;
const TURNS: usize = 5;
const CLIENTS: usize = 6;

/// Engines behind `services` services. With the push mode `blind` each choice follows from the prefixes alone, so the hit
/// ratio does not depend on the machine's speed.
async fn start(services: usize) -> anyhow::Result<Stack> {
    let engine = EngineOptions {
        speed: 20.0,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(3).engine(engine).push("blind");
    let stack = Stack::builder(&format!("siblings-{services}")).pool(pool);
    let stack = with_long_timeouts(stack.services(services));
    // A decision stream would keep all requests of a worker at one of the services.
    let stack = stack.envoy(|document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.remove("decision_stream").map(drop)
        })
    });
    let stack = stack.start().await?;
    wait_until_connected(&stack).await?;
    Ok(stack)
}

/// Waits until every service has a link to every sibling.
async fn wait_until_connected(stack: &Stack) -> anyhow::Result<()> {
    let count = stack.services().count();
    for service in stack.services().filter(|_| count > 1) {
        wait_for(WAIT_MAX, "links to all siblings", || async {
            let status = service.get("/api/regions").await?;
            let siblings = status.get("siblings").and_then(Value::as_array);
            let siblings = siblings.into_iter().flatten();
            let up = siblings.filter(|sibling| sibling.get("link") == Some(&Value::from("up")));
            Ok((up.count() == count - 1).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// The share of prompt tokens that the engines found in their caches.
async fn hit_ratio(stack: &Stack) -> anyhow::Result<f64> {
    let client = Client::new(&stack.url(""))?;
    // Conversations take turns: a client sends the next turn of the conversation that has waited longest.
    let queue: Arc<Mutex<VecDeque<usize>>> = Arc::new(Mutex::new((0..SESSIONS * TURNS).collect()));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, queue) = (client.clone(), Arc::clone(&queue));
        clients.spawn(async move {
            let (mut cached, mut prompt) = (0, 0);
            loop {
                let Some(number) = queue
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_front()
                else {
                    return anyhow::Ok((cached, prompt));
                };
                let body =
                    request_of_turn(&format!("topic {}", number % SESSIONS), number / SESSIONS);
                let response = send(client.post_chat(&body)).await?;
                anyhow::ensure!(response.status == 200, "{}", response.text());
                let response = response.json()?;
                let tokens = |path| response.pointer(path).and_then(Value::as_u64).unwrap_or(0);
                prompt += tokens("/usage/prompt_tokens");
                cached += tokens("/usage/prompt_tokens_details/cached_tokens");
            }
        });
    }
    let (mut cached, mut prompt) = (0, 0);
    while let Some(counts) = clients.join_next().await {
        let counts = counts??;
        cached += counts.0;
        prompt += counts.1;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 tokens")]
    Ok(cached as f64 / prompt as f64)
}

#[tokio::test]
async fn two_services_find_as_much_in_the_caches_as_one() -> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let alone = hit_ratio(&start(1).await?).await?;
    let stack = start(2).await?;
    let together = hit_ratio(&stack).await?;

    println!("hit ratio: one service {alone:.4}, two services {together:.4}");
    let mut arrived = Vec::new();
    for service in stack.services() {
        arrived.push(admin::pool_number(service, "counters/arrived").await?);
        let metric = "isotherm_placements_received_total";
        admin::wait_for_metric(service, metric, &[], |count| count > 0.0).await?;
    }
    let all: u64 = arrived.iter().sum();
    assert_eq!(all, u64::try_from(SESSIONS * TURNS)?);
    assert!(
        arrived.iter().all(|count| count * 10 >= all),
        "a service decided less than a tenth: {arrived:?}"
    );
    assert!(alone > 0.5, "the load has too few hits: {alone}");
    assert!(together >= 0.95 * alone, "{together} against {alone}");
    Ok(())
}

#[tokio::test]
async fn a_service_that_dies_beside_a_sibling_fails_no_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b"]).await?;
    let mut stack = scripted("sibling-dies", &replicas.each_ref(), 4)
        .services(2)
        .start()
        .await?;
    wait_until_connected(&stack).await?;
    let prompt =
        |client: usize, turn: usize| chat(&format!("Request {turn} of {client}. ").repeat(20));
    let load = Load::start(&stack.url(""), 8, prompt)?;
    load.wait_for_requests(50).await?;

    stack.service_mut().kill()?;

    wait_for(WAIT_MAX, "Envoy to drop the dead service", || async {
        let healthy = stack.envoy().stat("cluster.isotherm.membership_healthy");
        Ok((healthy.await? == 1).then_some(()))
    })
    .await?;
    let sibling = stack.services().nth(1).unwrap();
    wait_for(WAIT_MAX, "the sibling to decide every request", || async {
        let before = admin::pool_number(sibling, "counters/arrived").await?;
        let sent = load.wait_for_requests(50).await?.len() as u64;
        let arrived = admin::pool_number(sibling, "counters/arrived").await?;
        Ok((arrived >= before + sent).then_some(()))
    })
    .await?;

    stack.service_mut().start().await?;
    wait_until_connected(&stack).await?;
    // The decision streams stay at the sibling until it goes.
    let sibling = stack.services_mut().nth(1).unwrap();
    sibling.kill()?;
    wait_for(WAIT_MAX, "the restarted service to decide", || async {
        let arrived = admin::pool_number(stack.service(), "counters/arrived").await?;
        Ok((arrived > 20).then_some(()))
    })
    .await?;
    check_all_succeeded(&load.stop().await?)
}
