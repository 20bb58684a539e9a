//! Several services of one region, between which Envoy divides the requests.

use std::sync::Arc;

use isotherm_e2e::load::check_all_succeeded;
use isotherm_e2e::regions::series;
use isotherm_e2e::{
    Client, HttpResponse, Load, MODEL, ScriptedReplica, WAIT_MAX, admin, chat, fixture, permit,
};
use isotherm_harness::{EngineOptions, Pool, Stack, wait_for};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::conversation::turn_of;

const SESSIONS: usize = 24;
const TURNS: usize = 5;
const CLIENTS: usize = 6;

async fn stack(services: usize) -> anyhow::Result<Stack> {
    // Not faster: a service learns of its sibling's requests at once, and of their end with the next probe (200 ms). Where
    // requests are much shorter than that, replicas look busier than they are, and more prompts go to a cold one.
    let engine = EngineOptions {
        speed: 2.0,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(3).engine(engine);
    let name = format!("siblings-{services}");
    let stack = fixture::with_long_timeouts(Stack::builder(&name).pool(pool).services(services))
        .start()
        .await?;
    acquainted(&stack).await?;
    Ok(stack)
}

/// Waits until the services hear each other.
async fn acquainted(stack: &Stack) -> anyhow::Result<()> {
    let count = stack.services().count();
    for service in stack.services().filter(|_| count > 1) {
        wait_for(WAIT_MAX, "the siblings to be heard", || async {
            let seen = service
                .admin_request(reqwest::Method::GET, "/api/regions", None)
                .await?;
            let siblings = seen.get("siblings").and_then(Value::as_array);
            let siblings = siblings.into_iter().flatten();
            let up = siblings.filter(|one| one.get("link") == Some(&Value::from("up")));
            let up = up.count();
            Ok((up == count - 1).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// The share of prompt tokens that the engines found in their caches.
async fn hit_ratio(stack: &Stack) -> anyhow::Result<f64> {
    let client = Client::new(&stack.url(""))?;
    // Conversations take turns: a client asks the next question of whichever has waited longest.
    let next = Arc::new(Mutex::new((0..SESSIONS * TURNS).collect::<Vec<_>>()));
    next.lock().await.reverse();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, next) = (client.clone(), Arc::clone(&next));
        clients.spawn(async move {
            let (mut cached, mut prompt) = (0, 0);
            loop {
                let Some(number) = next.lock().await.pop() else {
                    return anyhow::Ok((cached, prompt));
                };
                let (turn, session) = (number / SESSIONS, number % SESSIONS);
                let body = turn_of(&format!("topic {session}"), turn);
                let request = client.post("/v1/chat/completions", &body);
                let answer = HttpResponse::to(request).await?;
                anyhow::ensure!(answer.status == 200, "{}", answer.text());
                let answer = answer.json()?;
                let tokens = |path: &str| answer.pointer(path).and_then(Value::as_u64);
                prompt += tokens("/usage/prompt_tokens").unwrap_or_default();
                let path = "/usage/prompt_tokens_details/cached_tokens";
                cached += tokens(path).unwrap_or_default();
            }
        });
    }
    let (mut cached, mut prompt) = (0, 0);
    while let Some(counted) = clients.join_next().await {
        let (of_cached, of_prompt) = counted??;
        cached += of_cached;
        prompt += of_prompt;
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 tokens")]
    Ok(cached as f64 / prompt as f64)
}

#[tokio::test]
async fn two_services_find_as_much_in_the_caches_as_one() -> anyhow::Result<()> {
    let _permit = permit::exclusive().await?;
    let alone = hit_ratio(&stack(1).await?).await?;
    let stack = stack(2).await?;
    let together = hit_ratio(&stack).await?;

    println!("hit ratio: one service {alone:.4}, two services {together:.4}");
    let mut shares = Vec::new();
    for service in stack.services() {
        shares.push(admin::pool_number(service, "counters/arrived").await?);
        let heard = series(service, "isotherm_placements_received_total", &[]).await?;
        assert!(heard > Some(0.0), "it was told nothing");
    }
    let (least, all) = (
        shares.iter().min().copied().unwrap_or_default(),
        shares.iter().sum::<u64>(),
    );
    assert_eq!(all, u64::try_from(SESSIONS * TURNS)?);
    assert!(least * 5 >= all * 2, "not half and half: {shares:?}");
    assert!(alone > 0.5, "the load has nothing to find: {alone}");
    assert!(together >= 0.95 * alone, "{together} against {alone}");
    Ok(())
}

#[tokio::test]
async fn a_service_that_dies_beside_another_fails_nothing() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = [
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    ];
    let mut stack = fixture::scripted("sibling-dies", &[&replicas[0], &replicas[1]], 4)
        .services(2)
        .start()
        .await?;
    acquainted(&stack).await?;
    let prompt =
        |client: usize, turn: usize| chat(&format!("Request {turn} of {client}. ").repeat(20));
    let load = Load::start(&stack.url(""), 8, prompt)?;
    load.wait_for_requests(50).await?;

    stack.service_mut().kill()?;

    wait_for(WAIT_MAX, "Envoy to drop the dead service", || async {
        let well = stack.envoy().stat("cluster.isotherm.membership_healthy");
        Ok((well.await? == 1).then_some(()))
    })
    .await?;
    let left = stack.services().nth(1).unwrap();
    let arrived = admin::pool_number(left, "counters/arrived").await?;
    load.wait_for_requests(50).await?;
    let left = stack.services().nth(1).unwrap();
    assert!(
        admin::pool_number(left, "counters/arrived").await? >= arrived + 50,
        "the other one decides all of it"
    );

    stack.service_mut().start().await?;
    acquainted(&stack).await?;
    wait_for(WAIT_MAX, "the first to get requests again", || async {
        let arrived = admin::pool_number(stack.service(), "counters/arrived").await?;
        Ok((arrived > 20).then_some(()))
    })
    .await?;
    check_all_succeeded(&load.stop().await?)
}
