//! Configuration that changes while requests pass.

use isotherm_e2e::{Client, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted};
use isotherm_harness::{wait_for, wait_until};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_bad_configuration_is_refused_with_every_error_and_the_old_one_stays()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("bad-reload", &[&replica], 4).start().await?;
    let before = admin::pool(stack.service()).await?;
    let bad = "pools:\n  - model: llama-3.1-8b\n    policy: guess\n    push: pending\n    colour: red\n    queue: { length_max: -4 }\n";
    std::fs::write(stack.service().config_path(), bad)?;

    let refused = stack
        .service()
        .admin_request(Method::POST, "/api/reload", None)
        .await;

    let error = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    for said in ["422", "guess", "3", "colour", "5", "length_max", "6"] {
        assert!(error.contains(said), "no {said} in: {error}");
    }
    // The service also watches the file by itself, with the same result.
    wait_until(WAIT_MAX, "the refusal in the log", || {
        let log = stack
            .service()
            .process()
            .map(isotherm_harness::process::Process::log);
        std::future::ready(log.is_ok_and(|log| log.contains("guess")))
    })
    .await?;
    let after = admin::pool(stack.service()).await?;
    assert_eq!(after["policy"], before["policy"]);
    assert_eq!(after["push"], before["push"]);
    let client = Client::new(&stack.url(""))?;
    assert_eq!(client.chat("s", &chat("still there?")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_good_configuration_is_applied_without_a_restart() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (first, second) = (
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    );
    let mut stack = scripted("good-reload", &[&first], 4).start().await?;
    let process = stack.service().process()?.id();
    let replicas = json!([first.address().to_string(), second.address().to_string()]);
    let config = stack.service_mut().config();
    config.set("pools/0/policy", "round_robin")?;
    config.set("pools/0/replicas/static", replicas)?;

    stack.service().save()?; // and nothing else: the file is watched

    wait_for(WAIT_MAX, "the new policy", || async {
        let pool = admin::pool(stack.service()).await?;
        Ok((pool["policy"] == "round_robin").then_some(()))
    })
    .await?;
    let addresses = [first.address(), second.address()];
    stack
        .envoy()
        .wait_for_endpoints(isotherm_e2e::CLUSTER, &addresses)
        .await?;
    admin::replica_becomes(
        stack.service(),
        second.address(),
        "availability",
        "available",
    )
    .await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..4 {
        let answer = client.chat("s", &chat(&format!("number {number}"))).await?;
        assert_eq!(answer.status, 200);
    }
    assert_eq!((first.received().len(), second.received().len()), (2, 2));
    assert_eq!(
        stack.service().process()?.id(),
        process,
        "it was not restarted"
    );
    Ok(())
}

#[tokio::test]
async fn nobody_changes_anything_without_the_token() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("token", &[&replica], 4).start().await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let one = format!("/api/replicas/{}", replica.address());
    let drain = format!("{one}/drain");
    for (method, path) in [
        (Method::POST, "/api/reload"),
        (Method::POST, "/api/replicas"),
        (Method::DELETE, &one),
        (Method::POST, &drain),
    ] {
        let url = stack.service().admin_url(path);
        for token in [None, Some("wrong")] {
            let request = client.request(method.clone(), &url).json(&json!({}));
            let request = match token {
                None => request,
                Some(token) => request.bearer_auth(token),
            };
            let status = request.send().await?.status();
            assert_eq!(status, 401, "{method} {path} with {token:?}");
        }
    }
    admin::replica(stack.service(), replica.address()).await?; // still there
    Ok(())
}
