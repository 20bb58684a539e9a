//! Headers that pass, and headers that must not, in each direction.

use isotherm_e2e::scripted_replica::PROMPT_TOKENS;
use isotherm_e2e::{
    Client, Http2Client, ScriptedReplica, admin, chat, permit, scripted, send, with_decision_header,
};
use isotherm_fingerprint::names;
use serde_json::json;

/// Headers for the filter and the service only, which no replica may receive.
const INTERNAL: [&str; 5] = [
    names::FINGERPRINT,
    names::MODEL,
    names::TIER,
    names::TOKENS,
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

#[tokio::test]
async fn the_outcome_reaches_the_service_and_no_internal_header_reaches_the_client()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("outcome", &[&replica], 4).start().await?;
    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    for stream in [false, true] {
        let mut body = chat("hello");
        body["stream"] = json!(stream);

        let response = connection
            .post("/v1/chat/completions", &[], body.to_string())?
            .await?;

        assert_eq!(response.status, 200);
        let names = response.headers.keys().chain(response.trailers.keys());
        let internal: Vec<_> = names
            .filter(|name| name.as_str().starts_with(names::PREFIX))
            .collect();
        assert!(internal.is_empty(), "the client got {internal:?}");
    }
    admin::wait_for_pool(stack.service(), "counters/finished_ok", 2).await?;
    let counter = "counters/measured_prompt_tokens";
    admin::wait_for_pool(stack.service(), counter, 2 * PROMPT_TOKENS).await
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
