//! Headers that pass, and headers that must not, in each direction.

use std::collections::BTreeSet;

use anyhow::Context as _;
use isotherm_e2e::scripted_replica::prompt_tokens;
use isotherm_e2e::{
    Client, Http2Client, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted, send,
    with_decision_header,
};
use isotherm_fingerprint::names;
use isotherm_harness::{StackBuilder, envoy, wait_for};
use serde_json::{Value, json};

/// Headers for the filter and the service only, which no replica may receive.
const INTERNAL: [&str; 6] = [
    names::FINGERPRINT,
    names::MODEL,
    names::TIER,
    names::TOKENS,
    names::STREAM,
    names::DECISION,
];

#[tokio::test]
async fn forged_headers_have_no_effect_and_reach_no_replica() -> anyhow::Result<()> {
    const FORGED: &str = "forged-by-the-client";
    let _permit = permit::shared().await?;
    let [a, b, trap] = ScriptedReplica::start_all(["a", "b", "trap"]).await?;
    let replicas = [&a, &b];
    let stack = scripted("forged", &replicas, 4).start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = chat(&"The same long beginning, again and again. ".repeat(100));
    let first = client.chat("s", &body).await?.success()?;
    let affinity = first.served_by().map(str::to_owned);
    let other = if affinity.as_deref() == Some("a") {
        &b
    } else {
        &a
    };

    let destinations = [
        other.address().to_string(),
        trap.address().to_string(),
        FORGED.to_owned(),
    ];
    for destination in destinations {
        let mut request = client
            .post_chat(&body)
            .header("x-session-id", "s")
            .header(names::DESTINATION, destination.as_str())
            .header(names::CLUSTER, "isotherm"); // Envoy's cluster of the service itself
        let more = [
            names::SESSION,
            names::ORIGIN,
            names::OUTCOME,
            "x-isotherm-unknown",
        ];
        for name in INTERNAL.into_iter().chain(more) {
            request = request.header(name, FORGED);
        }
        let response = send(request).await?.success()?;
        assert_eq!(
            response.served_by(),
            affinity.as_deref(),
            "sent to {destination}"
        );
    }

    assert!(trap.received().is_empty(), "a client chose the destination");
    let trap = trap.address().to_string();
    for request in replicas.into_iter().flat_map(ScriptedReplica::received) {
        for (name, value) in &request.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            assert!(
                !value.contains(FORGED),
                "{name}: {value} reached the replica"
            );
        }
        for name in INTERNAL.iter().chain(&[names::ORIGIN, names::OUTCOME]) {
            assert!(
                !request.headers.contains_key(*name),
                "{name} reached the replica"
            );
        }
        let destination = request.headers.get(names::DESTINATION);
        let destination = destination.map(|value| String::from_utf8_lossy(value.as_bytes()));
        assert!(
            !destination.is_some_and(|value| value.contains(&trap)),
            "the forged destination reached the replica"
        );
    }
    let bad = admin::counter(stack.service(), "isotherm_bad_headers_total", &[]).await?;
    assert_eq!(bad, 0, "the service received forged headers");
    Ok(())
}

/// Headers that steer engines and sidecars, and further names of such families.
fn control_headers() -> Vec<String> {
    let prefixes = names::ENGINE_CONTROL_PREFIXES.map(|prefix| format!("{prefix}rank"));
    let known = names::SIDECAR.iter().chain(&names::ENGINE_CONTROL);
    let known = known.map(|name| (*name).to_owned());
    prefixes.into_iter().chain(known).collect()
}

/// Checks that a replica gets the headers of the client, but no header of Isotherm, and none that steers an engine.
async fn check_headers_at_the_replica(
    stack: StackBuilder,
    replica: &ScriptedReplica,
) -> anyhow::Result<()> {
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let mut request = client
        .post_chat(&chat("hello"))
        .header("x-tier", "interactive-fast");
    for name in control_headers() {
        request = request.header(name, "1");
    }
    send(request).await?.success()?;
    let received = replica.received();
    let headers = &received[0].headers;
    assert!(headers.contains_key("x-tier"), "{headers:?}");
    let mut names = headers.keys().map(|name| name.as_str());
    let is_forbidden = |name: &str| {
        name.starts_with(names::PREFIX)
            || name == names::DESTINATION
            || control_headers().iter().any(|control| control == name)
    };
    let reached = names.find(|name| is_forbidden(name));
    assert_eq!(reached, None, "{headers:?}");
    Ok(())
}

#[tokio::test]
async fn no_header_that_steers_an_engine_reaches_a_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("steered", &[&replica], 4);
    check_headers_at_the_replica(stack, &replica).await
}

#[tokio::test]
async fn the_filter_removes_headers_that_steer_an_engine_itself() -> anyhow::Result<()> {
    const MUTATION: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config/early_header_mutation_extensions";
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("steered-filter", &[&replica], 4);
    let stack = stack.envoy(|document| document.set(MUTATION, json!([])));
    check_headers_at_the_replica(stack, &replica).await
}

/// A variable of every test's environment, and so of Envoy's.
const VARIABLE: &str = "CARGO_MANIFEST_DIR";

/// The value of `x-isotherm-session` in a cluster that lets it pass to the replica, from each of a stack's workers.
async fn session_headers(name: &str, secret: Value) -> anyhow::Result<BTreeSet<String>> {
    const UPSTREAM_FILTERS: &str = "static_resources/clusters/name=llama/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/http_filters";
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted(name, &[&replica], 32)
        .envoy(|document| document.remove(UPSTREAM_FILTERS).map(drop))
        .envoy(move |document| {
            let variables = json!({ "host_env_keys": [VARIABLE] });
            let path = "config/vm_config/environment_variables";
            envoy::set_in_filter(document, "isotherm.request", path, &variables)?;
            envoy::edit_filter(document, "isotherm.request", |filter| {
                filter.set("session_secret", secret.clone())
            })
        });
    let stack = stack.start().await?;
    for _ in 0..16 {
        // Each client has a connection of its own, so that both workers get some.
        let client = Client::new(&stack.url(""))?;
        client
            .chat("a-key-of-a-client", &chat("hello"))
            .await?
            .success()?;
    }
    let received = replica.received();
    let values = received.iter().map(|request| {
        let value = request.headers.get(names::SESSION);
        value.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    values
        .collect::<Option<_>>()
        .context("a request without a session")
}

#[tokio::test]
async fn the_session_header_has_a_hash_on_which_all_workers_and_envoys_agree() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let default = session_headers("session-default", Value::Null).await?;
    let again = session_headers("session-again", Value::Null).await?;
    let secret = session_headers("session-secret", json!(std::env::var(VARIABLE)?)).await?;
    let variable = session_headers("session-variable", json!({ "env": VARIABLE })).await?;
    assert_eq!(default, again);
    assert_ne!(default, secret);
    assert_eq!(variable, secret);
    for values in [default, secret] {
        assert_eq!(values.len(), 1, "{values:?}");
        assert!(
            !values.iter().any(|value| value.contains("a-key")),
            "{values:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_access_log_has_the_choice_and_no_query() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("access-log", &[&replica], 4).start().await?;
    let client = Client::new(&stack.url(""))?;
    let path = "/v1/chat/completions?api_key=a-key-in-a-query";
    send(client.post(path, &chat("hello"))).await?.success()?;
    let line = wait_for(WAIT_MAX, "the line of the access log", || async {
        let log = stack.envoy().process().log();
        Ok(log
            .lines()
            .find(|line| line.contains("\"path\""))
            .map(str::to_owned))
    });
    let line: Value = serde_json::from_str(&line.await?)?;
    let address = replica.address().to_string();
    assert_eq!(line["path"], "/v1/chat/completions");
    assert_eq!(
        (&line["chosen"], &line["replica"]),
        (&json!(address), &json!(address))
    );
    assert!(!stack.envoy().process().log().contains("a-key-in-a-query"));
    Ok(())
}

#[tokio::test]
async fn the_outcome_reaches_the_service_and_no_internal_header_reaches_the_client()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("outcome", &[&replica], 4).workers(1);
    let stack = stack.start().await?;
    stack.envoy().wait_for_decision_streams(2).await?;
    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    let mut tokens = 0;
    for stream in [false, true] {
        let mut body = chat("hello");
        body["stream"] = json!(stream);
        let body = body.to_string();
        tokens += prompt_tokens(body.as_bytes()) as u64;

        let response = connection.post("/v1/chat/completions", &[], body)?.await?;

        assert_eq!(response.status, 200);
        let names = response.headers.keys().chain(response.trailers.keys());
        let internal: Vec<_> = names
            .filter(|name| name.as_str().starts_with(names::PREFIX))
            .collect();
        assert!(internal.is_empty(), "the client got {internal:?}");
    }
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 2).await?;
    let counter = "counters/measured_prompt_tokens";
    admin::wait_for_pool(stack.service(), counter, tokens).await
}

#[tokio::test]
async fn the_decision_reaches_the_client_if_configured_and_never_the_replica() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_decision_header(scripted("decision", &[&replica], 4));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;

    let response = client.chat("s", &chat("hello")).await?;

    let address = replica.address().to_string();
    assert_eq!(response.decision("replica"), Some(address.as_str()));
    assert_eq!(response.decision("policy"), Some("prefix_tree"));
    assert!(response.decision("reason").is_some() && response.decision("queued_ms").is_some());
    assert!(!replica.received()[0].headers.contains_key(names::DECISION));
    Ok(())
}
