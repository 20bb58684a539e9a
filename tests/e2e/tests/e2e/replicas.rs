//! Replicas that come, go, fail and die.

use futures_util::future::try_join_all;
use isotherm_e2e::load::check_all_succeeded;
use isotherm_e2e::{
    Action, Client, HttpResponse, Load, MODEL, ScriptedReplica, WAIT_MAX, chat, permit, scripted,
};
use isotherm_harness::{Engine, EngineOptions, Pool, Stack, wait_for};
use serde_json::{Value, json};

const CLIENTS: usize = 6;

#[tokio::test]
async fn requests_without_a_first_byte_survive_the_death_of_their_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut dying = ScriptedReplica::start("dying").await?;
    let others = [
        ScriptedReplica::start("b").await?,
        ScriptedReplica::start("c").await?,
    ];
    for replica in others.iter().chain([&dying]) {
        replica.set_action(Action::Hold);
    }
    let all = [&dying, &others[0], &others[1]];
    let stack = scripted("death", &all, 2).start().await?;
    let client = Client::new(&stack.url(""))?;
    let ask = |number: usize| {
        let body = chat(&format!("number {number}"));
        tokio::spawn(HttpResponse::to(client.post("/v1/chat/completions", &body)))
    };
    let answers: Vec<_> = (0..6).map(ask).collect();
    for replica in all {
        replica.wait_until_holding(2).await?;
    }

    dying.kill();

    wait_for(
        WAIT_MAX,
        "the other replicas to have all requests",
        || async { Ok((others[0].held() + others[1].held() == 6).then_some(())) },
    )
    .await?;
    others.iter().for_each(ScriptedReplica::release_all);
    for answer in try_join_all(answers).await? {
        assert_eq!(answer?.status, 200);
    }
    // Nor does anything fail that comes later.
    for answer in try_join_all((0..12).map(ask)).await? {
        assert_eq!(answer?.status, 200);
    }
    Ok(())
}

async fn engines(name: &str, count: usize) -> anyhow::Result<Stack> {
    let options = EngineOptions {
        speed: 20.0,
        ..EngineOptions::default()
    };
    let pool = Pool::new(MODEL).replicas(count).engine(options);
    Stack::builder(name).pool(pool).start().await
}

/// A streamed answer of some length to a prompt that nobody has seen before.
fn prompt(client: usize, turn: usize) -> Value {
    let mut body = chat(&format!("Request {turn} of client {client}. ").repeat(30));
    body["max_tokens"] = json!(20);
    body["stream"] = json!(true);
    body
}

#[tokio::test]
async fn killing_an_engine_under_load_fails_only_what_had_begun() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut stack = engines("engine-killed", 3).await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(30).await?;

    stack.engine_mut(0)?.kill()?;

    load.wait_for_requests(60).await?;
    let records = load.stop().await?;
    let (begun, rest): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record.response_started && record.answer.is_err());
    assert!(begun.len() <= CLIENTS, "{} answers broke off", begun.len());
    check_all_succeeded(&rest)?;

    stack.engine_mut(0)?.restart().await?;

    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    wait_for(WAIT_MAX, "the engine to get requests again", || async {
        Ok((finished(stack.engine(0)?).await? > 0).then_some(()))
    })
    .await?;
    check_all_succeeded(&load.stop().await?)
}

#[tokio::test]
async fn a_drained_replica_ends_what_it_has_and_gets_nothing_new() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = [
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    ];
    replicas[0].set_action(Action::Hold);
    replicas[1].set_action(Action::Hold);
    let stack = scripted("drain", &[&replicas[0], &replicas[1]], 1)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let ask = |number: usize| {
        let body = chat(&format!("number {number}"));
        tokio::spawn(HttpResponse::to(client.post("/v1/chat/completions", &body)))
    };
    let mut answers: Vec<_> = (0..2).map(ask).collect();
    for replica in &replicas {
        replica.wait_until_holding(1).await?;
    }

    let drained = replicas[0].address();
    stack.service().drain_replica(MODEL, drained).await?;

    replicas.iter().for_each(ScriptedReplica::release_all);
    answers.extend((2..12).map(ask));
    for answer in try_join_all(answers).await? {
        assert_eq!(answer?.status, 200);
    }
    assert_eq!(replicas[0].received().len(), 1, "only what it had");
    Ok(())
}

#[tokio::test]
async fn adding_and_removing_a_replica_under_load_fails_no_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut stack = engines("come-and-go", 2).await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(20).await?;

    let added = stack.add_engine(0).await?;

    wait_for(WAIT_MAX, "the new replica to get requests", || async {
        Ok((finished(stack.engine(added)?).await? > 0).then_some(()))
    })
    .await?;

    let removed = stack.remove_engine(0).await?;

    load.wait_for_requests(2 * CLIENTS).await?; // what it was working on has ended
    let served = finished(&removed).await?;
    load.wait_for_requests(40).await?;
    assert_eq!(finished(&removed).await?, served, "it still gets requests");
    check_all_succeeded(&load.stop().await?)
}

async fn finished(engine: &Engine) -> anyhow::Result<u64> {
    let load: Value = reqwest::get(engine.url("/debug/load"))
        .await?
        .json()
        .await?;
    Ok(load["finished"].as_u64().unwrap_or_default())
}

#[tokio::test]
async fn an_engines_own_error_reaches_the_client_as_it_is() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = [
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    ];
    let stack = scripted("error-500", &[&replicas[0], &replicas[1]], 4)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    for replica in &replicas {
        replica.set_action(Action::Status(500));
    }

    let answer = client.chat("s", &chat("hello")).await?;

    assert_eq!(answer.status, 500);
    assert_eq!(answer.json()?["error"]["message"], "as the test wants it");
    let asked = replicas[0].received().len() + replicas[1].received().len();
    assert_eq!(asked, 1, "an error is not tried again");
    Ok(())
}

#[tokio::test]
async fn a_replica_that_is_full_or_drops_the_request_is_replaced_by_another() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let replicas = [
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    ];
    let stack = scripted("error-503", &[&replicas[0], &replicas[1]], 4)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    for fault in [Action::Status(503), Action::Disconnect] {
        let asked = replicas[0].received().len();
        replicas[0].set_action(fault);
        let mut number = 0;
        // Which replica a new prompt goes to is the policy's choice: until it was the faulty one, twice.
        wait_for(WAIT_MAX, "the faulty replica to be asked", || {
            number += 1;
            let body = chat(&format!("{fault:?} number {number}"));
            let (client, replicas) = (&client, &replicas);
            async move {
                let answer = client.chat("s", &body).await?;
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert_eq!(answer.served_by(), Some("b"));
                Ok((replicas[0].received().len() >= asked + 2).then_some(()))
            }
        })
        .await?;
    }
    Ok(())
}
