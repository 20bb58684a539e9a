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
        send_one(&stack, &client, &format!("number {number}")).await?;
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
