//! The circuit breaker: a replica that fails every request at once, while its metrics look perfect.

use std::time::Instant;

use isotherm_e2e::{
    Action, Client, HttpResponse, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted,
};
use isotherm_harness::{Stack, wait_for};

/// Failures in a row after which a replica gets no more requests.
const FAILURES_MAX: usize = 5;
const REQUESTS: usize = 40;
/// More requests than the service needs to send [`FAILURES_MAX`] of them to the failing replica.
const REQUESTS_MAX: usize = 500;

/// Sends a request, and waits until the service knows its outcome.
async fn send_one(stack: &Stack, client: &Client, prompt: &str) -> anyhow::Result<HttpResponse> {
    let response = client.chat("s", &chat(prompt)).await?;
    admin::wait_until_idle(stack.service()).await?;
    Ok(response)
}

#[tokio::test]
async fn one_bad_request_that_a_client_repeats_closes_no_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b"]).await?;
    for replica in &replicas {
        replica.set_action(Action::Status(500));
    }
    let stack = scripted("bad-request", &replicas.each_ref(), 8);
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    for _ in 0..4 * FAILURES_MAX {
        let response = send_one(&stack, &client, "the bad request").await?;
        assert_eq!(response.status, 500);
        for replica in &replicas {
            let state = admin::replica(stack.service(), replica.address()).await?;
            assert_eq!(state["availability"], "available");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_that_responds_500_gets_only_trial_requests_until_it_recovers()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [failing, good] = ScriptedReplica::start_all(["failing", "good"]).await?;
    failing.set_action(Action::Status(500));
    let stack = scripted("circuit-breaker", &[&failing, &good], 8)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let availability = async || {
        let replica = admin::replica(stack.service(), failing.address()).await?;
        anyhow::Ok(replica["availability"].clone())
    };

    for number in 0..REQUESTS_MAX {
        if availability().await? == "failing" {
            break;
        }
        // Prompts differ in length, as prompts of clients do: the fingerprint of a short prompt tells no more.
        send_one(&stack, &client, &"n".repeat(number + 1)).await?;
    }
    let started = Instant::now();
    assert_eq!(failing.received().len(), FAILURES_MAX);

    for number in 0..REQUESTS {
        send_one(&stack, &client, &format!("then {number}")).await?;
    }
    // The backoff starts at one second and doubles: at most one trial in each second that passed.
    let trials = failing.received().len() - FAILURES_MAX;
    let trials_max = 1 + usize::try_from(started.elapsed().as_secs())?;
    assert!(
        trials <= trials_max,
        "{trials} trials, at most {trials_max}"
    );

    failing.release_all();

    let mut number = 0;
    wait_for(WAIT_MAX, "the recovered replica to serve", || {
        number += 1;
        let prompt = format!("later {number}");
        let (client, stack, availability) = (&client, &stack, &availability);
        async move {
            let response = send_one(stack, client, &prompt).await?.success()?;
            let is_available = availability().await? == "available";
            Ok((is_available && response.served_by() == Some("failing")).then_some(()))
        }
    })
    .await
}
