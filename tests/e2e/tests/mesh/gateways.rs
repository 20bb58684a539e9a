//! Each gateway serves the demo's workload as the standalone Envoy does, and keeps the prompt where its page says so.

use anyhow::{Context as _, ensure};
use isotherm_demo::mesh::{HIT_RATIO_MIN, MeshRun, Traffic, run_on, start_gateway};
use isotherm_e2e::admin::wait_until_idle;
use isotherm_e2e::{Client, MODEL, WAIT_MAX, chat, permit};
use isotherm_harness::mesh::check_network;
use isotherm_harness::synthetic_text::tokens;
use isotherm_harness::{Mesh, MeshGateway, Pool, wait_for};

use crate::workload::{scenario, standalone};

/// Bound on the bytes that a gateway with the filter sends to the service, for each byte of a prompt.
///
/// A prompt of this workload has about 19 KB: 4,500 tokens of a system prompt, a few questions, and four bytes a token. Of a
/// request the service gets a fingerprint and headers, one or two KB. Envoy Gateway also sends the answer, eight short
/// events. Beside these, a gateway that sent one prompt of five would exceed the bound.
const SHARE_MAX: f64 = 0.2;

/// Decisions for the replica that has the prompt's beginning in its cache.
const BY_PREFIX: &str = r#"isotherm_decisions_total{pool="*",reason="prefix"}"#;

#[tokio::test]
async fn istio_keeps_the_prompt_in_front_of_an_inference_pool() -> anyhow::Result<()> {
    serve(MeshGateway::Istio).await
}

#[tokio::test]
async fn istio_keeps_the_prompt_in_front_of_a_service() -> anyhow::Result<()> {
    serve(MeshGateway::IstioService).await
}

#[tokio::test]
async fn istio_sends_the_prompt_of_an_inference_pool_without_the_filter() -> anyhow::Result<()> {
    serve(MeshGateway::InferencePool).await
}

#[tokio::test]
async fn envoy_gateway_keeps_the_prompt_in_front_of_a_service() -> anyhow::Result<()> {
    serve(MeshGateway::EnvoyGateway).await
}

#[tokio::test]
async fn envoy_ai_gateway_keeps_the_prompt_in_front_of_an_inference_pool() -> anyhow::Result<()> {
    serve(MeshGateway::AiGateway).await
}

/// The filter gets no bodies, so the service decides without the prompt, and no request waits for one.
#[tokio::test]
async fn envoy_gateway_without_patches_decides_by_headers() -> anyhow::Result<()> {
    let gateway = MeshGateway::EnvoyGateway;
    let found = check_network().and_then(|()| gateway.find_programs());
    if let Err(reason) = found {
        eprintln!("skipped: {reason:#}");
        return Ok(());
    }
    let _permit = permit::exclusive().await?;
    let mesh = Mesh::builder("mesh-unpatched", gateway, Pool::new(MODEL));
    let mesh = mesh.without_patches().start().await?;
    let client = Client::new(&mesh.url(""))?;
    let prompt = chat(&tokens(1, 2_000));
    for turn in 0..6 {
        let session = format!("session-{}", turn % 2);
        client.chat(&session, &prompt).await?.success()?;
        wait_until_idle(mesh.service()).await?;
    }
    let decided = metric(&mesh, "isotherm_decisions_total{").await?;
    let by_prefix = metric(&mesh, BY_PREFIX).await?;
    ensure!(
        decided >= 6.0 && by_prefix == 0.0,
        "{decided} decisions, {by_prefix} by prefix"
    );
    let bodies = mesh.service_traffic().await?.request_bodies;
    ensure!(bodies == 0, "{bodies} bytes of request bodies");
    Ok(())
}

/// Starts the gateway with its manifest, plays the workload, and compares.
async fn serve(gateway: MeshGateway) -> anyhow::Result<()> {
    let found = check_network().and_then(|()| gateway.find_programs());
    if let Err(reason) = found {
        eprintln!("skipped: {reason:#}");
        return Ok(());
    }
    let _permit = permit::exclusive().await?;
    let standalone = standalone().await?;
    let (scenario, scheme) = scenario()?;
    let mesh = start_gateway(&scenario, scheme, gateway).await?;
    let on_mesh = run_on(&mesh, &scenario, scheme, gateway).await?;
    expect_equal_hits(&on_mesh, standalone)?;
    expect_prompts(&on_mesh, gateway)?;
    expect_outcomes(&mesh).await
}

/// No request fails, and the engines find as much of the prompts in their caches as behind the standalone Envoy.
fn expect_equal_hits(on_mesh: &MeshRun, standalone: &MeshRun) -> anyhow::Result<()> {
    let [ours, theirs] = [on_mesh, standalone].map(|run| &run.run.metrics);
    ensure!(
        ours.failed == 0 && theirs.failed == 0,
        "{} requests failed, {} on the standalone Envoy",
        ours.failed,
        theirs.failed
    );
    let (ratio, bound) = (ours.cache_hit_ratio, theirs.cache_hit_ratio * HIT_RATIO_MIN);
    eprintln!("hit ratio {ratio}, standalone {}", theirs.cache_hit_ratio);
    ensure!(ratio >= bound, "hit ratio {ratio}, at least {bound}");
    Ok(())
}

/// The prompts stay in the proxy, or all of them go to the service, as the gateway's page says.
fn expect_prompts(on_mesh: &MeshRun, gateway: MeshGateway) -> anyhow::Result<()> {
    let traffic = Traffic::of(on_mesh, Some(gateway));
    eprintln!("{traffic:?}, {} per prompt byte", traffic.per_prompt_byte());
    if gateway.keeps_prompts() {
        ensure!(traffic.request_bodies == 0, "request bodies: {traffic:?}");
        ensure!(traffic.sent > 0, "Envoy counts nothing: {traffic:?}");
        let share = traffic.per_prompt_byte();
        ensure!(share < SHARE_MAX, "{share} per prompt byte: {traffic:?}");
    } else {
        let (sent, bodies) = (traffic.sent, traffic.request_bodies);
        ensure!(
            sent >= bodies && bodies >= traffic.prompts,
            "not every prompt is counted: {traffic:?}"
        );
    }
    Ok(())
}

/// The service has found prefixes, and has learned what became of requests.
async fn expect_outcomes(mesh: &Mesh) -> anyhow::Result<()> {
    let decided = metric(mesh, "isotherm_decisions_total{").await?;
    let found = metric(mesh, BY_PREFIX).await?;
    ensure!(
        found > decided / 2.0,
        "{decided} decisions, {found} by prefix"
    );
    wait_for(WAIT_MAX, "the outcomes", || async {
        let tokens = metric(mesh, "isotherm_measured_prompt_tokens_total{").await?;
        Ok((tokens > 0.0).then_some(()))
    })
    .await
}

/// The sum of a metric of the service over the samples that begin with `name`.
async fn metric(mesh: &Mesh, name: &str) -> anyhow::Result<f64> {
    let page = mesh.service().get("/metrics").await?;
    let page = page.as_str().context("the page is not text")?;
    let samples = page.lines().filter(|line| line.starts_with(name));
    let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}
