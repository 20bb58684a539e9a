//! Without the service, no request fails and sessions stay at the replica that has their cache.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_e2e::fixture::{scripted_as_shipped, with_detecting_timeouts};
use isotherm_e2e::load::{RequestRecord, check_all_succeeded};
use isotherm_e2e::{
    Action, CLUSTER, Client, Load, ScriptedReplica, WAIT_MAX, admin, chat, expect_success, permit,
    with_decision_header,
};
use isotherm_harness::{Stack, wait_for};
use serde_json::Value;

const CLIENTS: usize = 6;
/// Enough requests for every client to send several.
const REQUESTS: usize = 60;

/// A fault of the service.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Kill,
    Suspend,
}

impl Fault {
    fn inject(self, stack: &mut Stack) -> anyhow::Result<()> {
        match self {
            Self::Kill => stack.service_mut().kill(),
            Self::Suspend => stack.service().process()?.suspend(),
        }
    }

    async fn repair(self, stack: &mut Stack) -> anyhow::Result<()> {
        match self {
            Self::Kill => stack.service_mut().start().await,
            Self::Suspend => stack.service().process()?.resume(),
        }
    }
}

/// A prompt of the client's own, long enough to be recognised.
fn prompt(client: usize, _turn: usize) -> Value {
    chat(&format!("Client {client} begins like this. ").repeat(80))
}

#[tokio::test]
async fn killing_the_service_fails_no_request_and_keeps_sessions_at_their_replicas()
-> anyhow::Result<()> {
    check_no_request_fails(Fault::Kill).await
}

#[tokio::test]
async fn suspending_the_service_fails_no_request_and_keeps_sessions_at_their_replicas()
-> anyhow::Result<()> {
    check_no_request_fails(Fault::Suspend).await
}

async fn check_no_request_fails(fault: Fault) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b", "c"]).await?;
    let stack = scripted_as_shipped(&format!("service-{fault:?}"), &replicas.each_ref(), 8);
    let stack = with_detecting_timeouts(with_decision_header(stack));
    let mut stack = stack.start().await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    wait_until_decided(&load).await?;

    fault.inject(&mut stack)?;

    // Requests that the service had decided before the fault are through after these.
    check_all_succeeded(&load.wait_for_requests(REQUESTS).await?)?;
    load.wait_for_each_client().await?;
    let during = load.wait_for_requests(REQUESTS).await?;
    check_all_succeeded(&during)?;
    assert!(
        !during.iter().any(is_decided),
        "a decision without the service"
    );
    for (session, replicas) in replicas_by_session(&during) {
        assert_eq!(replicas.len(), 1, "{session} went to {replicas:?}");
    }

    fault.repair(&mut stack).await?;

    wait_until_decided(&load).await?;
    // The prompts are the same as before, so the service soon knows each one again.
    wait_for(WAIT_MAX, "most prompts to be recognised", || async {
        let after = load.wait_for_requests(REQUESTS).await?;
        let recognised = after.iter().filter(|record| matched(record) > 0.9);
        Ok((recognised.count() * 2 > after.len()).then_some(()))
    })
    .await?;
    check_all_succeeded(&load.stop().await?)
}

/// The cluster removes the session key from the first attempt, so a retry hashes what Envoy has kept of it.
#[tokio::test]
async fn a_retry_without_the_service_keeps_sessions_at_their_replicas() -> anyhow::Result<()> {
    const SESSIONS: usize = 64;
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b", "c", "d"]).await?;
    let stack = scripted_as_shipped("retry-session", &replicas.each_ref(), 8);
    let mut stack = with_detecting_timeouts(stack).start().await?;
    stack.service_mut().kill()?;
    let client = Client::new(&stack.url(""))?;
    let mut of_a = Vec::new();
    for session in (0..SESSIONS).map(|number| format!("session-{number}")) {
        let response = client.chat(&session, &chat("hello")).await?.success()?;
        if response.served_by() == Some("a") {
            of_a.push(session);
        }
    }

    replicas[0].set_action(Action::Status(503));

    let mut all = BTreeSet::new();
    for session in &of_a {
        let mut of_session = BTreeSet::new();
        for _ in 0..3 {
            let response = client.chat(session, &chat("hello")).await?.success()?;
            of_session.extend(response.served_by().map(str::to_owned));
        }
        assert_eq!(of_session.len(), 1, "{session} went to {of_session:?}");
        all.append(&mut of_session);
    }
    // By the client's address, all of them would go to one replica.
    assert!(all.len() > 1 && !all.contains("a"), "{all:?}");
    Ok(())
}

#[tokio::test]
async fn requests_queued_in_a_service_that_dies_continue_without_it() -> anyhow::Result<()> {
    check_queued_requests_survive(Fault::Kill).await
}

#[tokio::test]
async fn requests_queued_in_a_service_that_is_suspended_continue_without_it() -> anyhow::Result<()>
{
    check_queued_requests_survive(Fault::Suspend).await
}

async fn check_queued_requests_survive(fault: Fault) -> anyhow::Result<()> {
    const QUEUED: usize = 5;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = scripted_as_shipped(&format!("queued-{fault:?}"), &[&replica], 1);
    let mut stack = with_detecting_timeouts(stack).start().await?;
    let client = Client::new(&stack.url(""))?;
    let mut responses = vec![client.spawn_chat("hello")];
    replica.wait_until_holding(1).await?;
    responses.extend((0..QUEUED).map(|_| client.spawn_chat("hello")));
    admin::wait_for_pool(stack.service(), "queue_length", QUEUED as u64).await?;

    fault.inject(&mut stack)?;

    replica.wait_until_holding(1 + QUEUED).await?;
    replica.release_all();
    expect_success(responses).await?;
    Ok(())
}

#[tokio::test]
async fn a_graceful_shutdown_under_load_fails_no_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b", "c"]).await?;
    let stack = scripted_as_shipped("stop", &replicas.each_ref(), 1);
    let mut stack = with_decision_header(stack).start().await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(REQUESTS).await?;

    stack.service_mut().stop(WAIT_MAX).await?;
    load.wait_for_requests(REQUESTS).await?;
    stack.service_mut().start().await?;

    wait_until_decided(&load).await?;
    check_all_succeeded(&load.stop().await?)
}

/// Endpoints come from the service, so an Envoy that starts before it has none: it responds 503 at once.
#[tokio::test]
async fn an_envoy_that_starts_before_the_service_works_once_the_service_runs() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted_as_shipped("late", &[&replica], 4).without_service();
    let mut stack = with_decision_header(stack).start().await?;
    let client = Client::new(&stack.url(""))?;
    assert_eq!(client.chat("s", &chat("hello")).await?.status, 503);
    assert!(stack.envoy().endpoints(CLUSTER).await?.is_empty());

    stack.service_mut().start().await?;

    let endpoints = [replica.address()];
    stack
        .envoy()
        .wait_for_endpoints(CLUSTER, &endpoints)
        .await?;
    wait_for(WAIT_MAX, "a decision", || async {
        let response = client.chat("s", &chat("hello")).await?.success()?;
        Ok(response.decision("replica").map(drop))
    })
    .await
}

async fn wait_until_decided(load: &Load) -> anyhow::Result<()> {
    wait_for(WAIT_MAX, "the service to decide again", || async {
        let records = load.wait_for_requests(2 * CLIENTS).await?;
        Ok(records.iter().all(is_decided).then_some(()))
    })
    .await
}

fn is_decided(record: &RequestRecord) -> bool {
    let response = record.response.as_ref();
    response.is_ok_and(|response| response.decision("replica").is_some())
}

/// The share of the prompt that the service had recorded for the replica of its choice.
fn matched(record: &RequestRecord) -> f64 {
    let response = record.response.as_ref().ok();
    let share = response.and_then(|response| response.decision("matched")?.parse().ok());
    share.unwrap_or(0.0)
}

fn replicas_by_session(records: &[RequestRecord]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut replicas = BTreeMap::<&str, BTreeSet<&str>>::new();
    for record in records {
        let of_session = replicas.entry(&record.session).or_default();
        of_session.extend(record.served_by());
    }
    replicas
}
