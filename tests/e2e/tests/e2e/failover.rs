//! Without the service: nothing fails, and sessions stay where their cache is.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::try_join_all;
use isotherm_e2e::load::{RequestRecord, check_all_succeeded};
use isotherm_e2e::{
    Action, CLUSTER, Client, HttpResponse, Load, ScriptedReplica, WAIT_MAX, admin, as_shipped,
    chat, permit, with_decision_header,
};
use isotherm_harness::{Stack, wait_for, wait_until};
use serde_json::Value;

const CLIENTS: usize = 6;
/// Enough for every client to have asked several times.
const ROUND: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Accident {
    Killed,
    Frozen,
}

impl Accident {
    fn happen(self, stack: &mut Stack) -> anyhow::Result<()> {
        match self {
            Self::Killed => stack.service_mut().kill(),
            Self::Frozen => stack.service().suspend(),
        }
    }

    async fn end(self, stack: &mut Stack) -> anyhow::Result<()> {
        match self {
            Self::Killed => stack.service_mut().start().await,
            Self::Frozen => stack.service().resume(),
        }
    }
}

async fn replicas() -> anyhow::Result<Vec<ScriptedReplica>> {
    try_join_all(["a", "b", "c"].map(ScriptedReplica::start)).await
}

/// A prompt of a client's own, long enough to be recognised.
fn prompt(client: usize, _turn: usize) -> Value {
    chat(&format!("Client {client} begins like this. ").repeat(80))
}

#[tokio::test]
async fn killing_the_service_fails_no_request_and_sessions_stay_where_they_are()
-> anyhow::Result<()> {
    nothing_fails_while_the_service_is(Accident::Killed).await
}

#[tokio::test]
async fn freezing_the_service_fails_no_request_and_sessions_stay_where_they_are()
-> anyhow::Result<()> {
    nothing_fails_while_the_service_is(Accident::Frozen).await
}

async fn nothing_fails_while_the_service_is(accident: Accident) -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = replicas().await?;
    let all: Vec<&ScriptedReplica> = replicas.iter().collect();
    let stack = as_shipped(&format!("service-{accident:?}"), &all, 8);
    let mut stack = with_decision_header(stack).start().await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    until_decided(&load).await?;

    accident.happen(&mut stack)?;

    let during = load.wait_for_requests(ROUND).await?;
    check_all_succeeded(&during)?;
    // A moment passes until the last request that the service had decided is through.
    let during = load.wait_for_requests(ROUND).await?;
    check_all_succeeded(&during)?;
    assert!(!during.iter().any(is_decided), "nobody decides");
    for (session, places) in places(&during) {
        assert_eq!(places.len(), 1, "{session} went to {places:?}");
    }

    accident.end(&mut stack).await?;

    until_decided(&load).await?;
    // The same prompts as before, so by now each is known where it was sent.
    let after = load.wait_for_requests(ROUND).await?;
    let known = after.iter().filter(|record| matched(record) > 0.9).count();
    assert!(
        known * 2 > after.len(),
        "{known} of {} prompts were known",
        after.len()
    );
    check_all_succeeded(&load.stop().await?)
}

#[tokio::test]
async fn what_waits_in_a_service_that_dies_goes_on_without_it() -> anyhow::Result<()> {
    waiting_requests_survive(Accident::Killed).await
}

#[tokio::test]
async fn what_waits_in_a_service_that_freezes_goes_on_without_it() -> anyhow::Result<()> {
    waiting_requests_survive(Accident::Frozen).await
}

async fn waiting_requests_survive(accident: Accident) -> anyhow::Result<()> {
    const WAITING: usize = 5;
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = as_shipped(&format!("waiting-{accident:?}"), &[&replica], 1);
    let mut stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let ask = || {
        tokio::spawn(HttpResponse::to(
            client.post("/v1/chat/completions", &chat("hello")),
        ))
    };
    let mut answers = vec![ask()];
    replica.wait_until_holding(1).await?;
    answers.extend((0..WAITING).map(|_| ask()));
    admin::becomes(stack.service(), "queue_length", WAITING as u64).await?;

    accident.happen(&mut stack)?;

    replica.wait_until_holding(1 + WAITING).await?;
    replica.release_all();
    for answer in try_join_all(answers).await? {
        assert_eq!(answer?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn an_orderly_stop_under_load_fails_no_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = replicas().await?;
    let all: Vec<&ScriptedReplica> = replicas.iter().collect();
    let mut stack = with_decision_header(as_shipped("stop", &all, 1))
        .start()
        .await?;
    let load = Load::start(&stack.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(ROUND).await?;

    stack.service_mut().stop(WAIT_MAX).await?;
    load.wait_for_requests(ROUND).await?;
    stack.service_mut().start().await?;

    until_decided(&load).await?;
    check_all_succeeded(&load.stop().await?)
}

/// Endpoints come from the service. So an Envoy that starts before it has none: it answers 503 at once, and works as
/// soon as the service is there, without being told.
#[tokio::test]
async fn an_envoy_that_starts_before_the_service_works_once_the_service_is_there()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_decision_header(as_shipped("late", &[&replica], 4)).without_service();
    let mut stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    assert_eq!(client.chat("s", &chat("anybody?")).await?.status, 503);
    assert!(stack.envoy().endpoints(CLUSTER).await?.is_empty());

    stack.service_mut().start().await?;

    let limit = Duration::from_secs(90); // Envoy asks again at growing intervals
    wait_until(limit, "the endpoints", || async {
        let endpoints = stack.envoy().endpoints(CLUSTER).await;
        endpoints.is_ok_and(|endpoints| endpoints == [replica.address()])
    })
    .await?;
    wait_for(limit, "a decision", || async {
        let answer = client.chat("s", &chat("anybody?")).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        Ok(answer.decision("replica").map(drop))
    })
    .await
}

async fn until_decided(load: &Load) -> anyhow::Result<()> {
    wait_for(WAIT_MAX, "the service to decide again", || async {
        let records = load.wait_for_requests(2 * CLIENTS).await?;
        Ok(records.iter().all(is_decided).then_some(()))
    })
    .await
}

fn is_decided(record: &RequestRecord) -> bool {
    let answer = record.answer.as_ref();
    answer.is_ok_and(|answer| answer.decision("replica").is_some())
}

/// Which share of the prompt the service knew at the replica that it chose.
fn matched(record: &RequestRecord) -> f64 {
    let answer = record.answer.as_ref().ok();
    let share = answer.and_then(|answer| answer.decision("matched")?.parse().ok());
    share.unwrap_or(0.0)
}

/// Where each session went.
fn places(records: &[RequestRecord]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut places = BTreeMap::<&str, BTreeSet<&str>>::new();
    for record in records {
        let of_session = places.entry(&record.session).or_default();
        of_session.extend(record.served_by());
    }
    places
}
