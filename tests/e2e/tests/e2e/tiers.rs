//! Tiers, budgets, deadlines and priorities of engines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use isotherm_e2e::{
    Action, Client, HttpResponse, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted, send,
    with_decision_header,
};
use isotherm_harness::{Stack, StackBuilder, envoy, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A stack whose pool has these tiers.
fn tiered(name: &str, replica: &ScriptedReplica, tiers: Value) -> StackBuilder {
    let stack = with_decision_header(scripted(name, &[replica], 1));
    stack.service(|config| config.set("pools/0/tiers", tiers))
}

fn without_decision_stream(stack: StackBuilder) -> StackBuilder {
    stack.envoy(|document| {
        envoy::edit_filter(document, "isotherm.request", |filter| {
            filter.remove("decision_stream").map(drop)
        })
    })
}

/// Sends a chat request with these headers and this `service_tier`.
async fn send_with(
    client: &Client,
    headers: &[(&str, &str)],
    service_tier: Option<&str>,
) -> anyhow::Result<HttpResponse> {
    let mut body = chat("hello");
    if let Some(tier) = service_tier {
        body["service_tier"] = tier.into();
    }
    let request = client.post_chat(&body);
    let with_header = |request: reqwest::RequestBuilder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    send(headers.iter().fold(request, with_header)).await
}

/// Checks the tier that the service reads, and what reaches the replica.
async fn check_tiers(stack: StackBuilder, replica: &ScriptedReplica) -> anyhow::Result<()> {
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let budget = ("x-llm-d-slo-ttft-ms", "1500");
    for (headers, service_tier, expected) in [
        (&[][..], None, "interactive-normal"),
        (&[("x-tier", "interactive-fast")], None, "interactive-fast"),
        (&[budget], Some("priority"), "interactive-fast"),
        (&[("x-tier", "urgent")], Some("auto"), "interactive-normal"),
        (&[budget], Some("flex"), "non-interactive"),
    ] {
        let response = send_with(&client, headers, service_tier).await?.success()?;
        assert_eq!(response.decision("tier"), Some(expected), "{headers:?}");
    }
    for request in replica.received() {
        let mut names = request.headers.keys().map(|name| name.as_str());
        let internal =
            names.find(|name| name.starts_with("x-isotherm-") || name.starts_with("x-llm-d-"));
        assert_eq!(internal, None, "{:?}", request.headers);
    }
    let bad = admin::counter(stack.service(), "isotherm_bad_headers_total", &[]).await?;
    assert_eq!(bad, 0);
    let condition = "the tier in the access log";
    wait_for(WAIT_MAX, condition, || async {
        let log = stack.envoy().process().log();
        Ok(log.contains("\"tier\":\"non-interactive\"").then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_tier_of_a_request_of_the_decision_stream_is_read() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    check_tiers(tiered("tiers", &replica, json!({})), &replica).await
}

#[tokio::test]
async fn the_tier_of_a_request_of_external_processing_is_read() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = without_decision_stream(tiered("tiers-ext-proc", &replica, json!({})));
    check_tiers(stack, &replica).await
}

#[tokio::test]
async fn a_pool_without_tiers_ignores_them() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_kv_usage(0.9);
    let stack = with_decision_header(scripted("no-tiers", &[&replica], 1));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let headers = [("x-tier", "non-interactive"), ("x-slo-ttft-ms", "1")];
    let response = send_with(&client, &headers, None).await?.success()?;
    assert_eq!(response.decision("tier"), None);
    let page = stack.service().get("/metrics").await?;
    let page = page.as_str().context("the metrics are not text")?;
    assert!(!page.contains("isotherm_tier_queue_length{"), "{page}");
    Ok(())
}

/// Checks the header by which an engine learns the class of a request.
async fn check_priority(
    stack: StackBuilder,
    replica: &ScriptedReplica,
    engine: &'static str,
    (name, interactive, batch): (&str, &str, &str),
) -> anyhow::Result<()> {
    let stack = stack
        .service(move |config| config.set("pools/0/engine_priority", engine))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let forged = [("x-vllm-priority", "-100"), ("x-override-priority", "100")];
    for tier in [None, Some("flex")] {
        send_with(&client, &forged, tier).await?.success()?;
    }
    let received = replica.received();
    let priorities = received.iter().map(|request| {
        let values = request.headers.get_all(name).iter();
        Vec::from_iter(values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()))
    });
    assert_eq!(Vec::from_iter(priorities), [[interactive], [batch]]);
    let other = forged.iter().find(|(other, _)| *other != name);
    let (other, _) = other.context("two engines")?;
    assert!(
        received
            .iter()
            .all(|request| !request.headers.contains_key(*other))
    );
    Ok(())
}

#[tokio::test]
async fn vllm_learns_the_class_of_a_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = tiered("priority-vllm", &replica, json!({}));
    check_priority(stack, &replica, "vllm", ("x-vllm-priority", "0", "1")).await
}

#[tokio::test]
async fn sglang_learns_the_class_of_a_request_of_external_processing() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = without_decision_stream(tiered("priority-sglang", &replica, json!({})));
    check_priority(
        stack,
        &replica,
        "sglang",
        ("x-override-priority", "0", "-1"),
    )
    .await
}

/// Waits until the gate reports this utilisation.
async fn wait_for_utilisation(stack: &Stack, is_expected: fn(f64) -> bool) -> anyhow::Result<()> {
    wait_for(WAIT_MAX, "the utilisation of the gate", || async {
        let gates = stack.service().get("/api/batch").await?;
        let utilisation = gates.pointer("/0/utilisation").and_then(Value::as_f64);
        Ok(utilisation.filter(|value| is_expected(*value)).map(drop))
    })
    .await
}

async fn released(stack: &Stack, reason: &str) -> anyhow::Result<u64> {
    let labels = [("reason", reason)];
    admin::counter(stack.service(), "isotherm_batch_released_total", &labels).await
}

#[tokio::test]
async fn batch_work_waits_for_capacity_to_spare() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_kv_usage(0.9);
    let tiers = json!({ "batch_wait_ms_max": 300 });
    let stack = tiered("gate-of-tiers", &replica, tiers).start().await?;
    wait_for_utilisation(&stack, |value| value > 0.8).await?;
    let client = Client::new(&stack.url(""))?;

    let refused = send_with(&client, &[], Some("flex")).await?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    let after: u64 = refused.header("retry-after").context("no delay")?.parse()?;
    assert!(after >= 1);
    assert_eq!(refused.json()?["error"]["code"], "no_spare_capacity");
    send_with(&client, &[], Some("default")).await?.success()?;
    assert_eq!(replica.received().len(), 1);

    replica.set_kv_usage(0.1);
    wait_for_utilisation(&stack, |value| value < 0.3).await?;
    send_with(&client, &[], Some("flex")).await?.success()?;
    assert_eq!(released(&stack, "below_low").await?, 1);
    Ok(())
}

#[tokio::test]
async fn batch_work_with_a_near_deadline_waits_no_longer() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_kv_usage(0.9);
    let stack = tiered("deadline", &replica, json!({})).start().await?;
    wait_for_utilisation(&stack, |value| value > 0.8).await?;
    let client = Client::new(&stack.url(""))?;
    let deadline = SystemTime::now() + Duration::from_secs(60);
    let deadline = deadline.duration_since(UNIX_EPOCH)?.as_secs().to_string();
    let headers = [("x-tier", "non-interactive"), ("x-deadline", &*deadline)];
    send_with(&client, &headers, None).await?.success()?;
    assert_eq!(released(&stack, "promoted").await?, 1);
    Ok(())
}

/// Sends a request with a prompt and headers in a task of its own, and waits until so many wait.
async fn queue(
    stack: &Stack,
    client: &Client,
    prompt: &str,
    header: (&'static str, String),
    length: u64,
) -> anyhow::Result<JoinHandle<anyhow::Result<HttpResponse>>> {
    let request = client.post_chat(&chat(prompt)).header(header.0, header.1);
    let task = tokio::spawn(send(request));
    admin::wait_for_pool(stack.service(), "queue_length", length).await?;
    Ok(task)
}

/// The prompts that a replica received, in their order.
fn prompts(replica: &ScriptedReplica) -> anyhow::Result<Vec<String>> {
    let received = replica.received();
    let prompts = received.iter().map(|request| {
        let body: Value = serde_json::from_slice(&request.body)?;
        let prompt = body.pointer("/messages/0/content").and_then(Value::as_str);
        Ok(prompt.context("no prompt")?.to_owned())
    });
    prompts.collect()
}

#[tokio::test]
async fn a_request_with_a_short_budget_goes_first() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Hold);
    let stack = tiered("budget", &replica, json!({}))
        .service(|config| config.set("pools/0/queue", json!({ "order": "edf" })))
        .start()
        .await?;
    let client = Client::new(&stack.url(""))?;
    let mut tasks = vec![client.spawn_chat("first")];
    replica.wait_until_holding(1).await?;
    let budget = |ms: u64| ("x-slo-ttft-ms", ms.to_string());
    tasks.push(queue(&stack, &client, "patient", budget(3_600_000), 1).await?);
    tasks.push(queue(&stack, &client, "urgent", budget(600_000), 2).await?);
    replica.release_all();
    isotherm_e2e::expect_success(tasks).await?;
    assert_eq!(prompts(&replica)?, ["first", "urgent", "patient"]);
    Ok(())
}
