//! Which headers pass in which direction.

use isotherm_e2e::engine_response::PROMPT_TOKENS;
use isotherm_e2e::{
    Client, Http2Client, MODEL, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted,
    with_decision_header,
};
use isotherm_fingerprint::names;
use isotherm_harness::wait_for;
use serde_json::json;

/// What only the filter and the service read: no replica gets these.
const INTERNAL: [&str; 5] = [
    names::FINGERPRINT,
    names::MODEL,
    names::TIER,
    names::TOKENS,
    names::DECISION,
];

#[tokio::test]
async fn forged_headers_have_no_effect_and_reach_nobody() -> anyhow::Result<()> {
    const FORGED: &str = "forged-by-the-client";
    let _permit = permit::shared().await?;
    let replicas = [
        ScriptedReplica::start("a").await?,
        ScriptedReplica::start("b").await?,
    ];
    let trap = ScriptedReplica::start("trap").await?;
    let stack = scripted("forged", &[&replicas[0], &replicas[1]], 4)
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let body = chat(&"The same long beginning, again and again. ".repeat(100));
    let first = client.chat("s", &body).await?;
    assert_eq!(first.status, 200, "{}", first.text());
    let home = first.served_by().map(str::to_owned);
    let away = replicas
        .iter()
        .find(|replica| Some(replica.name()) != home.as_deref());
    let away = away
        .map(ScriptedReplica::address)
        .unwrap_or_else(|| trap.address());

    for destination in [
        away.to_string(),
        trap.address().to_string(),
        FORGED.to_owned(),
    ] {
        let mut request = client
            .post("/v1/chat/completions", &body)
            .header("x-session-id", "s")
            .header(names::DESTINATION, destination.as_str())
            .header(names::CLUSTER, "isotherm"); // the service's own cluster in Envoy
        for name in INTERNAL {
            request = request.header(name, FORGED);
        }
        for name in [
            names::SESSION,
            names::ORIGIN,
            names::OUTCOME,
            "x-isotherm-unknown",
        ] {
            request = request.header(name, FORGED);
        }
        let answer = isotherm_e2e::HttpResponse::to(request).await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(
            answer.served_by(),
            home.as_deref(),
            "sent away by {destination}"
        );
    }

    assert!(trap.received().is_empty(), "a client chose the destination");
    for request in replicas.iter().flat_map(ScriptedReplica::received) {
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
            !destination.is_some_and(|value| value.contains(&trap.address().to_string())),
            "the forged destination reached the replica"
        );
    }
    let bad = admin::metric(stack.service(), "isotherm_bad_headers_total").await?;
    assert!(bad < 0.5, "the service saw {bad} forged headers");
    Ok(())
}

#[tokio::test]
async fn the_outcome_goes_to_the_service_and_nothing_internal_to_the_client() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("outcome", &[&replica], 4).start().await?;
    let mut connection = Http2Client::connect(stack.envoy().address()).await?;
    for stream in [false, true] {
        let mut body = chat("hello");
        body["stream"] = json!(stream);
        let sent = connection.post("/v1/chat/completions", &[], body.to_string())?;

        let answer = sent.await?;

        assert_eq!(answer.status, 200);
        let names = answer.headers.keys().chain(answer.trailers.keys());
        let internal: Vec<_> = names
            .filter(|name| name.as_str().starts_with(names::PREFIX))
            .collect();
        assert!(internal.is_empty(), "the client got {internal:?}");
    }
    admin::becomes(stack.service(), "counters/finished_ok", 2).await?;
    wait_for(WAIT_MAX, "the usage of both answers", || async {
        let tokens = admin::pool_number(stack.service(), "counters/measured_prompt_tokens").await?;
        Ok((tokens == 2 * PROMPT_TOKENS).then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_decision_reaches_the_client_where_it_was_asked_for() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = with_decision_header(scripted("decision", &[&replica], 4))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;

    let answer = client.chat("s", &chat("hello")).await?;

    assert_eq!(
        answer.decision("replica"),
        Some(replica.address().to_string().as_str())
    );
    assert_eq!(answer.decision("policy"), Some("prefix_tree"));
    assert!(answer.decision("reason").is_some() && answer.decision("queued_ms").is_some());
    assert!(
        !replica.received()[0].headers.contains_key(names::DECISION),
        "for {MODEL}'s client only"
    );
    Ok(())
}
