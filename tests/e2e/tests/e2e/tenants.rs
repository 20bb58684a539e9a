//! Tenants: what one sends is no match for another, each has bounds of its own, and none changes what others match.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{
    Action, Client, HttpResponse, MODEL, ScriptedReplica, admin, chat, engines, permit, scripted,
    send, with_decision_header,
};
use isotherm_harness::{Document, Stack, StackBuilder, envoy};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::falsified::{claim, victim};

const TENANT: &str = "x-tenant-id";
const FILTERS: &str =
    "static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
/// A token of `ann`, signed with [`KEY`].
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ0ZXN0cyIsInN1YiI6ImFubiJ9.UASpxTUMxE_9o7q038h7rz5gnnyNn4zyH-ioHL5nA_E";
/// A key of HMAC-SHA256, in base64url.
const KEY: &str = "YSBrZXkgb2YgdGhpcnR5LXR3byBieXRlcywgdGVzdCE";

fn with_sources(stack: StackBuilder, sources: Value) -> StackBuilder {
    with_filter(stack, "tenant_sources", sources)
}

fn with_filter(stack: StackBuilder, key: &'static str, value: Value) -> StackBuilder {
    stack.envoy(move |document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.set(key, value.clone())
        })
    })
}

fn by_header(stack: StackBuilder) -> StackBuilder {
    with_sources(stack, json!([{ "header": TENANT }]))
}

async fn send_as(client: &Client, tenant: &str, body: &Value) -> anyhow::Result<HttpResponse> {
    send(client.post_chat(body).header(TENANT, tenant)).await
}

async fn count(stack: &Stack, name: &str, tenant: &str) -> anyhow::Result<u64> {
    admin::counter(stack.service(), name, &[("tenant", tenant)]).await
}

#[tokio::test]
async fn tenants_with_one_prompt_share_no_match() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = by_header(with_decision_header(engines("tenants", 2, 50.0)));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = victim(0);
    let mut matched = Vec::new();
    for tenant in ["a", "a", "b", "b"] {
        let response = send_as(&client, tenant, &body).await?.success()?;
        let share = response.decision("matched").context("no decision")?;
        matched.push(share.parse::<f64>()?);
    }
    assert_eq!([matched[0], matched[2]], [0.0, 0.0], "{matched:?}");
    ensure!(matched[1] > 0.9 && matched[3] > 0.9, "{matched:?}");
    let without = send(client.post_chat(&body)).await?.success()?;
    assert_eq!(without.decision("matched"), Some("0.000"));
    for (tenant, requests) in [("a", 2), ("b", 2)] {
        assert_eq!(
            count(&stack, "isotherm_tenant_requests_total", tenant).await?,
            requests
        );
    }
    Ok(())
}

/// Puts Envoy's JWT filter in front, which writes the claims into dynamic metadata.
fn check_tokens(document: &mut Document) -> anyhow::Result<()> {
    let keys = json!({ "keys": [{ "kty": "oct", "alg": "HS256", "k": KEY }] });
    let filter = json!({
        "name": "envoy.filters.http.jwt_authn",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": { "tests": {
                "issuer": "tests",
                "payload_in_metadata": "payload",
                "local_jwks": { "inline_string": keys.to_string() },
            } },
            "rules": [{ "match": { "prefix": "/" }, "requires": { "provider_name": "tests" } }],
        },
    });
    let filters = document.get_mut(FILTERS)?;
    let filters = filters.as_array_mut().context("no list of filters")?;
    filters.insert(0, filter);
    Ok(())
}

#[tokio::test]
async fn the_subject_of_a_token_is_the_tenant() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let place = json!({ "filter": "envoy.filters.http.jwt_authn", "path": ["payload", "sub"] });
    let stack = with_sources(
        engines("tenant-token", 1, 50.0),
        json!([{ "metadata": place }]),
    )
    .envoy(check_tokens);
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let request = client.post_chat(&chat("hello")).bearer_auth(TOKEN);
    send(request.header(TENANT, "forged")).await?.success()?;
    assert_eq!(send(client.post_chat(&chat("hello"))).await?.status, 401);
    assert_eq!(
        count(&stack, "isotherm_tenant_requests_total", "ann").await?,
        1
    );
    assert_eq!(
        count(&stack, "isotherm_tenant_requests_total", "forged").await?,
        0
    );
    Ok(())
}

#[tokio::test]
async fn a_tenant_with_more_than_its_share_of_a_busy_pool_gets_429() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let long = "word ".repeat(4_000);
    // Two thirds of the requests, and half of them with nearly all tokens.
    expect_refusal(&[("a", "first"), ("a", "second"), ("b", "other")]).await?;
    expect_refusal(&[("a", &long), ("b", "other")]).await
}

/// Sends requests of tenants to a busy pool, in which the tenant `a` then has more than its share.
async fn expect_refusal(requests: &[(&str, &str)]) -> anyhow::Result<()> {
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    replica.set_kv_usage(0.6);
    let stack = by_header(scripted("tenant-share", &[&replica], 1))
        .service(|config| config.set("pools/0/tenants", json!({ "share_max": 0.5 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let mut admitted = Vec::new();
    for (waiting, (tenant, prompt)) in (0..).zip(requests) {
        let request = client.post_chat(&chat(prompt)).header(TENANT, *tenant);
        admitted.push(tokio::spawn(send(request)));
        replica.wait_until_holding(1).await?;
        admin::wait_for_pool(stack.service(), "queue_length", waiting).await?;
    }

    let refused = send_as(&client, "a", &chat("third")).await?;

    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.json()?["error"]["code"], "tenant_limit");
    let [of_a, of_b] = [tokens(&stack, "a").await?, tokens(&stack, "b").await?];
    ensure!(of_a > of_b && of_b > 0, "{of_a} and {of_b} tokens");
    replica.release_all();
    for response in admitted {
        response.await??.success()?;
    }
    Ok(())
}

/// Tokens of a tenant's requests that wait or are in flight.
async fn tokens(stack: &Stack, tenant: &str) -> anyhow::Result<u64> {
    let pools = stack.service().get("/api/tenants").await?;
    let tenants = pools.pointer("/0/tenants").and_then(Value::as_array);
    let mut tenants = tenants.context("no tenants")?.iter();
    let found = tenants.find(|found| found["tenant"] == tenant);
    let tokens = found.and_then(|found| found["tokens"].as_u64());
    tokens.context("no such tenant")
}

#[tokio::test]
async fn a_tenant_beyond_its_bound_gets_429_and_another_is_served() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = by_header(scripted("tenant-bound", &[&replica], 1))
        .service(|config| config.set("pools/0/tenants", json!({ "in_flight_max": 2 })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let spawn = |tenant: &'static str, prompt: &str| {
        let request = client.post_chat(&chat(prompt)).header(TENANT, tenant);
        tokio::spawn(send(request))
    };
    let in_flight = spawn("a", "first");
    replica.wait_until_holding(1).await?;
    let waiting = spawn("a", "second");
    admin::wait_for_pool(stack.service(), "queue_length", 1).await?;

    let refused = send_as(&client, "a", &chat("third")).await?;

    assert_eq!(refused.status, 429, "{}", refused.text());
    let retry_after = refused.header("retry-after").context("no Retry-After")?;
    ensure!(retry_after.parse::<u64>()? >= 1, "{retry_after}");
    let error = &refused.json()?["error"];
    assert_eq!(error["code"], "tenant_limit");
    assert_eq!(error["type"], "rate_limit_error");
    let other = spawn("b", "of another tenant");
    admin::wait_for_pool(stack.service(), "queue_length", 2).await?;
    replica.release_all();
    for response in [in_flight, waiting, other] {
        response.await??.success()?;
    }
    assert_eq!(
        count(&stack, "isotherm_tenant_refused_total", "a").await?,
        1
    );
    assert_eq!(
        count(&stack, "isotherm_tenant_refused_total", "b").await?,
        0
    );
    Ok(())
}

/// The matched share of each prompt of the tenant `a`, as the service explains it.
async fn matches(stack: &Stack) -> anyhow::Result<Vec<f64>> {
    let mut matches = Vec::new();
    for number in 0..8 {
        let request =
            json!({ "path": "/v1/chat/completions", "body": victim(number), "tenant": "a" });
        let service = stack.service();
        let explained = service.admin_request(Method::POST, "/api/explain", Some(&request));
        let explained = explained.await?;
        let candidates = explained["candidates"].as_array().context("no list")?;
        let shares = candidates
            .iter()
            .filter_map(|c| c["matched_share"].as_f64());
        matches.push(shares.fold(0.0, f64::max));
    }
    Ok(matches)
}

/// A tiny request that shows the router another prompt than the engine.
fn hostile(number: usize) -> String {
    let claim = claim(number / 4);
    let members = match number % 2 {
        0 => format!(r#""content":"{claim}","content":"hi""#),
        _ => format!(r#""content":"hi","note":"{claim}""#),
    };
    format!(r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user",{members}}}]}}"#)
}

#[tokio::test]
async fn a_thousand_hostile_requests_change_no_match_of_another_tenant() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = by_header(engines("hostile-tenant", 3, 50.0))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..8 {
        send_as(&client, "a", &victim(number)).await?.success()?;
    }
    admin::wait_until_idle(stack.service()).await?;
    let before = matches(&stack).await?;
    ensure!(before.iter().all(|share| *share > 0.9), "{before:?}");

    for number in 0..1_000 {
        let request = client.post_chat(&Value::Null).header(TENANT, "b");
        let response = send(request.body(hostile(number)));
        if number % 3 == 0 {
            // The client gives up, before or after the dispatch.
            let _ = timeout(Duration::from_millis(2), response).await;
        } else {
            response.await?.success()?;
        }
    }
    admin::wait_until_idle(stack.service()).await?;

    let after = matches(&stack).await?;
    let changed = before.iter().zip(&after);
    let changed = changed.filter(|(before, after)| (*before - *after).abs() > 0.01);
    assert_eq!(changed.count(), 0, "{before:?} {after:?}");
    Ok(())
}

#[tokio::test]
async fn a_client_does_not_learn_what_was_cached_and_the_service_does() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let stack = with_decision_header(engines("hidden-cache", 1, 50.0));
    let stack = with_filter(stack, "hide_cache", json!(true))
        .start()
        .await?;
    // Envoy tells the service of the usage once its streams are open.
    stack.envoy().wait_for_decision_streams(3).await?;
    let client = Client::new(&stack.url(""))?;
    let mut body = victim(0);
    for is_stream in [false, false, true] {
        body["stream"] = json!(is_stream);
        if is_stream {
            body["stream_options"] = json!({ "include_usage": true });
        }
        let response = send(client.post_chat(&body)).await?.success()?;
        let text = response.text();
        ensure!(text.contains("\"cached_tokens\""), "{text}");
        for number in text.split("\"cached_tokens\":").skip(1) {
            let number = number.split(['}', ',']).next().unwrap_or_default();
            assert_eq!(number, "0", "{text}");
        }
        assert_eq!(response.header("x-isotherm-decision"), None);
    }
    admin::wait_until_idle(stack.service()).await?;
    let cached = admin::counter(
        stack.service(),
        "isotherm_measured_cached_tokens_total",
        &[],
    );
    ensure!(cached.await? > 0, "the service learned nothing");
    Ok(())
}
