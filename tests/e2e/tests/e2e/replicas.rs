//! Replicas that are added, removed, drained, that fail and die.

use isotherm_e2e::load::check_all_succeeded;
use isotherm_e2e::{
    Action, Client, Load, MODEL, ScriptedReplica, WAIT_MAX, chat, engines, expect_success, permit,
    scripted,
};
use isotherm_harness::{Engine, wait_for, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

const CLIENTS: usize = 6;

#[tokio::test]
async fn requests_without_a_first_byte_survive_the_death_of_their_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [mut dying, b, c] = ScriptedReplica::start_all(["dying", "b", "c"]).await?;
    for replica in [&dying, &b, &c] {
        replica.set_action(Action::Hold);
    }
    let stack = scripted("death", &[&dying, &b, &c], 2).start().await?;
    let client = Client::new(&stack.url(""))?;
    let request = |number: usize| client.spawn_chat(&format!("number {number}"));
    let responses: Vec<_> = (0..6).map(request).collect();
    for replica in [&dying, &b, &c] {
        replica.wait_until_holding(2).await?;
    }

    dying.kill();

    wait_until(WAIT_MAX, "the other replicas to hold all requests", || {
        std::future::ready(b.held() + c.held() == 6)
    })
    .await?;
    b.release_all();
    c.release_all();
    expect_success(responses).await?;
    // Later requests succeed as well.
    expect_success((0..12).map(request)).await?;
    Ok(())
}

/// A request for a streamed response of some length to a new prompt.
fn prompt(client: usize, turn: usize) -> Value {
    let mut body = chat(&format!("Request {turn} of client {client}. ").repeat(30));
    body["max_tokens"] = json!(20);
    body["stream"] = json!(true);
    body
}

#[tokio::test]
async fn killing_an_engine_under_load_fails_only_responses_that_had_started() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let mut stack = engines("engine-killed", 3, 20.0).start().await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(30).await?;

    stack.engine_mut(0)?.kill()?;

    load.wait_for_requests(60).await?;
    let records = load.stop().await?;
    let (started, rest): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record.response_started && record.response.is_err());
    assert!(
        started.len() <= CLIENTS,
        "{} responses broke off",
        started.len()
    );
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
async fn a_drained_replica_finishes_its_requests_and_gets_no_new_ones() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [drained, other] = ScriptedReplica::start_all(["a", "b"]).await?;
    let replicas = [&drained, &other];
    for replica in replicas {
        replica.set_action(Action::Hold);
    }
    let stack = scripted("drain", &replicas, 1).start().await?;
    let client = Client::new(&stack.url(""))?;
    let request = |number: usize| client.spawn_chat(&format!("number {number}"));
    let mut responses: Vec<_> = (0..2).map(request).collect();
    for replica in replicas {
        replica.wait_until_holding(1).await?;
    }

    let drain = format!("/api/replicas/{}/drain?pool={MODEL}", drained.address());
    let service = stack.service();
    service.admin_request(Method::POST, &drain, None).await?;

    for replica in replicas {
        replica.release_all();
    }
    responses.extend((2..12).map(request));
    expect_success(responses).await?;
    assert_eq!(drained.received().len(), 1, "it got a new request");
    Ok(())
}

#[tokio::test]
async fn adding_and_removing_a_replica_under_load_fails_no_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut stack = engines("add-and-remove", 2, 20.0).start().await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(20).await?;

    let added = stack.add_engine().await?;

    wait_for(WAIT_MAX, "the new replica to get requests", || async {
        Ok((finished(stack.engine(added)?).await? > 0).then_some(()))
    })
    .await?;

    let removed = stack.remove_engine(0).await?;

    load.wait_for_each_client().await?; // requests that the engine had have ended
    let served = finished(&removed).await?;
    load.wait_for_requests(40).await?;
    assert_eq!(finished(&removed).await?, served, "it still gets requests");
    check_all_succeeded(&load.stop().await?)
}

/// Number of requests that an engine has finished.
async fn finished(engine: &Engine) -> anyhow::Result<u64> {
    let load = engine.load().await?;
    Ok(load["finished"].as_u64().unwrap_or_default())
}

#[tokio::test]
async fn an_engines_own_error_reaches_the_client_unchanged() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let stack = scripted("error-500", &[&a, &b], 4).start().await?;
    let client = Client::new(&stack.url(""))?;
    for replica in [&a, &b] {
        replica.set_action(Action::Status(500));
    }

    let response = client.chat("s", &chat("hello")).await?;

    assert_eq!(response.status, 500);
    assert_eq!(response.json()?["error"]["message"], "set by the test");
    let received = a.received().len() + b.received().len();
    assert_eq!(received, 1, "Envoy retried an engine's error");
    Ok(())
}

#[tokio::test]
async fn a_request_that_its_replica_refuses_or_drops_goes_to_another_replica() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let [faulty, good] = ScriptedReplica::start_all(["a", "b"]).await?;
    let stack = scripted("error-503", &[&faulty, &good], 4).start().await?;
    let client = Client::new(&stack.url(""))?;
    for fault in [Action::Status(503), Action::Disconnect] {
        let before = faulty.received().len();
        faulty.set_action(fault);
        let mut number = 0;
        // The policy chooses the replica of a new prompt, so requests continue until the faulty one got two.
        wait_for(WAIT_MAX, "the faulty replica to get requests", || {
            number += 1;
            let body = chat(&format!("{fault:?} number {number}"));
            let (client, faulty) = (&client, &faulty);
            async move {
                let response = client.chat("s", &body).await?.success()?;
                assert_eq!(response.served_by(), Some("b"));
                Ok((faulty.received().len() >= before + 2).then_some(()))
            }
        })
        .await?;
    }
    Ok(())
}
