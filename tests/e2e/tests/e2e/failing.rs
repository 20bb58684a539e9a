//! A black hole: a replica that fails every request at once, and whose metrics page is perfect.

use isotherm_e2e::{Action, Client, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted};
use isotherm_harness::wait_for;

/// More than a black hole may fail before it is left out.
const FAILURES_MAX: usize = 5;
const ROUND: usize = 40;

#[tokio::test]
async fn a_replica_that_answers_500_at_once_gets_nothing_but_trials_until_it_is_healed()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (hole, good) = (
        ScriptedReplica::start("hole").await?,
        ScriptedReplica::start("good").await?,
    );
    hole.set_action(Action::Status(500));
    let stack = scripted("black-hole", &[&hole, &good], 8).start().await?;
    let client = Client::new(&stack.url(""))?;

    let mut number = 0;
    wait_for(WAIT_MAX, "the black hole to be left out", || {
        number += 1;
        let body = chat(&format!("number {number}"));
        let (client, stack, hole) = (&client, &stack, &hole);
        async move {
            client.chat("s", &body).await?;
            let replica = admin::replica(stack.service(), hole.address()).await?;
            Ok((replica["availability"] == "failing").then_some(()))
        }
    })
    .await?;
    assert_eq!(hole.received().len(), FAILURES_MAX);

    let started = std::time::Instant::now();
    for number in 0..ROUND {
        client.chat("s", &chat(&format!("then {number}"))).await?;
    }
    // The back-off is a second at first and doubles, so there is at most one trial a second.
    let trials = hole.received().len() - FAILURES_MAX;
    let at_most = 1 + usize::try_from(started.elapsed().as_secs())?;
    assert!(trials <= at_most, "{trials} trials, at most {at_most}");

    hole.release_all();

    let mut number = 0;
    wait_for(WAIT_MAX, "the healed replica to be back", || {
        number += 1;
        let body = chat(&format!("later {number}"));
        let (client, stack, hole) = (&client, &stack, &hole);
        async move {
            let answer = client.chat("s", &body).await?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let replica = admin::replica(stack.service(), hole.address()).await?;
            let back = replica["availability"] == "available";
            Ok((back && answer.served_by() == Some("hole")).then_some(()))
        }
    })
    .await
}
