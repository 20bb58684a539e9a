//! A prompt that breaks every replica that reads it: it takes two replicas, and the others serve on.

use isotherm_e2e::{Client, HttpResponse, ScriptedReplica, admin, chat, permit, scripted};
use isotherm_harness::Stack;

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const DEADLY: &str = "the words that crash an engine";

/// Six replicas that break when they read [`DEADLY`].
async fn fragile() -> anyhow::Result<[ScriptedReplica; 6]> {
    let replicas = ScriptedReplica::start_all(NAMES).await?;
    for replica in &replicas {
        replica.break_on(DEADLY);
    }
    Ok(replicas)
}

fn broken(replicas: &[ScriptedReplica]) -> usize {
    replicas.iter().map(ScriptedReplica::broken).sum()
}

#[tokio::test]
async fn a_request_that_breaks_its_replicas_reaches_two_of_six() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = fragile().await?;
    let stack = scripted("crashing", &replicas.each_ref(), 8)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;

    let response = client.chat("s", &chat(DEADLY)).await?;

    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(broken(&replicas), 2);
    for number in 0..12 {
        let body = chat(&format!("harmless {number}"));
        client.chat("s", &body).await?.success()?;
    }
    Ok(())
}

fn assert_quarantined(response: &HttpResponse) -> anyhow::Result<()> {
    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(response.json()?["error"]["code"], "quarantined");
    assert!(response.header("retry-after").is_some());
    Ok(())
}

async fn check_metrics(stack: &Stack, rejected: u64) -> anyhow::Result<()> {
    let reason = [("reason", "quarantined")];
    let service = stack.service();
    let rejects = admin::counter(service, "isotherm_rejects_total", &reason).await?;
    let quarantines = admin::counter(service, "isotherm_quarantines_total", &[]).await?;
    assert_eq!((rejects, quarantines), (rejected, 1));
    Ok(())
}

#[tokio::test]
async fn a_request_sent_again_and_again_takes_no_more_than_two_replicas() -> anyhow::Result<()> {
    const AGAIN: u64 = 10;
    let _permit = permit::shared().await?;
    let replicas = fragile().await?;
    let stack = scripted("quarantine", &replicas.each_ref(), 8)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    // The conversation is in the cache of one replica before and after.
    let harmless = chat(&"A long conversation. ".repeat(50));
    let before = client.chat("s", &harmless).await?.success()?;
    client.chat("s", &chat(DEADLY)).await?;
    admin::wait_until_idle(stack.service()).await?;

    for _ in 0..AGAIN {
        assert_quarantined(&client.chat("s", &chat(DEADLY)).await?)?;
    }

    assert_eq!(broken(&replicas), 2);
    check_metrics(&stack, AGAIN).await?;
    let after = client.chat("s", &harmless).await?.success()?;
    assert_eq!(before.served_by(), after.served_by());
    let also = format!("{DEADLY}?");
    assert_ne!(
        client.chat("s", &chat(&also)).await?.text(),
        "",
        "another prompt is tried"
    );
    Ok(())
}
