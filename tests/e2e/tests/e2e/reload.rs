//! The configuration changes while requests pass.

use isotherm_e2e::{Client, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted};
use isotherm_harness::wait_for;
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn an_invalid_configuration_is_refused_with_every_error_and_changes_nothing()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("bad-reload", &[&replica], 4).start().await?;
    let service = stack.service();
    let before = admin::pool(service).await?;
    let bad = "pools:\n  - model: llama-3.1-8b\n    policy: guess\n    push: pending\n    colour: red\n    queue: { length_max: -4 }\n";
    std::fs::write(service.config_path(), bad)?;

    let refused = service
        .admin_request(Method::POST, "/api/reload", None)
        .await;

    let error = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    for part in ["422", "guess", "3", "colour", "5", "length_max", "6"] {
        assert!(error.contains(part), "no {part} in: {error}");
    }
    // The service also watches the file, with the same result.
    admin::wait_for_log(service, "guess").await?;
    let after = admin::pool(service).await?;
    assert_eq!(after["policy"], before["policy"]);
    assert_eq!(after["push"], before["push"]);
    let client = Client::new(&stack.url(""))?;
    assert_eq!(client.chat("s", &chat("hello")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_valid_configuration_is_applied_without_a_restart() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [first, second] = ScriptedReplica::start_all(["a", "b"]).await?;
    let mut stack = scripted("good-reload", &[&first], 4).start().await?;
    let process = stack.service().process()?.id();
    let addresses = [first.address(), second.address()];
    let config = stack.service_mut().config();
    config.set("pools/0/policy", "round_robin")?;
    let replicas = json!(addresses.map(|address| address.to_string()));
    config.set("pools/0/replicas/static", replicas)?;

    stack.service().save()?; // the service watches the file

    wait_for(WAIT_MAX, "the new policy", || async {
        let pool = admin::pool(stack.service()).await?;
        Ok((pool["policy"] == "round_robin").then_some(()))
    })
    .await?;
    let cluster = isotherm_e2e::CLUSTER;
    stack
        .envoy()
        .wait_for_endpoints(cluster, &addresses)
        .await?;
    let service = stack.service();
    admin::wait_for_replica(service, second.address(), "availability", "available").await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..4 {
        client
            .chat("s", &chat(&format!("number {number}")))
            .await?
            .success()?;
    }
    assert_eq!((first.received().len(), second.received().len()), (2, 2));
    assert_eq!(service.process()?.id(), process, "the service restarted");
    Ok(())
}

#[tokio::test]
async fn the_admin_api_changes_nothing_without_the_token() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("token", &[&replica], 4).start().await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    let path_of_replica = format!("/api/replicas/{}", replica.address());
    let drain = format!("{path_of_replica}/drain");
    for (method, path) in [
        (Method::POST, "/api/reload"),
        (Method::POST, "/api/replicas"),
        (Method::DELETE, &path_of_replica),
        (Method::POST, &drain),
    ] {
        let url = stack.service().admin_url(path);
        for token in [None, Some("wrong")] {
            let mut request = client.request(method.clone(), &url).json(&json!({}));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let status = request.send().await?.status();
            assert_eq!(status, 401, "{method} {path} with {token:?}");
        }
    }
    admin::replica(stack.service(), replica.address()).await?; // still there
    Ok(())
}
