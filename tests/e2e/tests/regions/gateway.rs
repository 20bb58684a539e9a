//! The gateway of a region, Envoy's listener `regions`: access, health, and a certificate that is replaced in operation.

use std::net::SocketAddr;

use isotherm_e2e::http2_client::Http2Response;
use isotherm_e2e::regions::{client, scripted_regions, wait_until_connected};
use isotherm_e2e::{Http2Client, ScriptedReplica, WAIT_MAX, chat, permit};
use isotherm_fingerprint::names;
use isotherm_harness::{Regions, Stack, wait_for};

const HEALTH: &str = "/isotherm/health";

/// Sends a chat request as a region with the name `origin`.
async fn send_from(
    connection: &mut Http2Client,
    origin: Option<&str>,
) -> anyhow::Result<Http2Response> {
    let headers: Vec<(&str, &str)> = origin
        .map(|origin| (names::ORIGIN, origin))
        .into_iter()
        .collect();
    let body = chat("From which region?").to_string();
    connection
        .post("/v1/chat/completions", &headers, body)?
        .await
}

/// The address on which one region reaches the gateway of another.
fn gateway(regions: &Regions, from: &str, to: &str) -> anyhow::Result<SocketAddr> {
    Ok(regions.link(from, to)?.gateway.address())
}

/// The health that a region reports to balancers in front of its clients' listener.
async fn health_for_clients(stack: &Stack) -> anyhow::Result<u16> {
    Ok(reqwest::get(stack.url(HEALTH)).await?.status().as_u16())
}

#[tokio::test]
async fn a_region_can_only_send_under_its_own_name() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let regions = scripted_regions("gateway", &[&us, &eu], 1).start().await?;
    wait_until_connected(&regions).await?;
    let gateway = gateway(&regions, "us", "eu")?;

    let certificates = regions.certificates("us");
    let mut connection = Http2Client::connect_to_gateway("eu", gateway, &certificates).await?;
    // The receiver's own name would mark a request that came back.
    for origin in [None, Some("eu"), Some("asia")] {
        let response = send_from(&mut connection, origin).await?;
        assert_eq!(response.status, 503, "{origin:?}: {response:?}");
    }
    assert!(eu.received().is_empty());
    let response = send_from(&mut connection, Some("us")).await?;
    assert_eq!(response.status, 200);
    assert_eq!(response.headers.get(names::REFUSED), None);
    assert_eq!(eu.received().len(), 1);

    // A valid signature is not enough: no region has this name.
    let stranger = regions.directory().join("stranger");
    regions.authority().issue("mars", &stranger)?;
    let refused = async {
        let mut connection = Http2Client::connect_to_gateway("eu", gateway, &stranger).await?;
        send_from(&mut connection, Some("mars")).await
    };
    refused.await.unwrap_err();
    assert_eq!(eu.received().len(), 1);
    Ok(())
}

#[tokio::test]
async fn the_gateway_is_healthy_as_long_as_the_service_runs() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let mut regions = scripted_regions("health", &[&us, &eu], 1).start().await?;
    wait_until_connected(&regions).await?;
    let (gateway, certificates) = (gateway(&regions, "us", "eu")?, regions.certificates("us"));
    let mut connection = Http2Client::connect_to_gateway("eu", gateway, &certificates).await?;
    assert_eq!(connection.get(HEALTH)?.await?.status, 200);
    assert_eq!(health_for_clients(regions.region("eu")?).await?, 200);

    // Without the service, forwarded requests are refused and clients are served by ring hash.
    regions.region_mut("eu")?.service_mut().kill()?;
    let response = send_from(&mut connection, Some("us")).await?;
    assert_eq!(response.status, 503);
    assert_eq!(response.headers.get(names::REFUSED).unwrap(), "no_service");
    wait_for(WAIT_MAX, "the gateway to be unhealthy", || async {
        let mut connection = Http2Client::connect_to_gateway("eu", gateway, &certificates).await?;
        Ok((connection.get(HEALTH)?.await?.status == 503).then_some(()))
    })
    .await?;
    assert_eq!(health_for_clients(regions.region("eu")?).await?, 200);
    assert!(eu.received().is_empty());
    let client = client(&regions, "eu")?;
    assert_eq!(client.chat("s", &chat("And now?")).await?.status, 200);

    // An operator drains the Envoy.
    let fail = regions.region("eu")?.envoy().admin_url("/healthcheck/fail");
    let drained = reqwest::Client::new().post(fail).send().await?;
    drained.error_for_status()?;
    assert_eq!(health_for_clients(regions.region("eu")?).await?, 503);
    Ok(())
}

#[tokio::test]
async fn a_certificate_is_replaced_while_requests_pass() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let regions = scripted_regions("renewal", &[&us, &eu], 1).start().await?;
    wait_until_connected(&regions).await?;
    let (gateway, certificates) = (gateway(&regions, "us", "eu")?, regions.certificates("us"));

    let mut old = Http2Client::connect_to_gateway("eu", gateway, &certificates).await?;
    assert_eq!(send_from(&mut old, Some("us")).await?.status, 200);
    regions
        .authority()
        .issue("eu", &regions.certificates("eu"))?;
    let mut new = wait_for(WAIT_MAX, "the new certificate", || async {
        let new = Http2Client::connect_to_gateway("eu", gateway, &certificates).await?;
        Ok((new.server_certificate != old.server_certificate).then_some(new))
    })
    .await?;
    assert_eq!(send_from(&mut new, Some("us")).await?.status, 200);
    assert_eq!(send_from(&mut old, Some("us")).await?.status, 200);
    Ok(())
}
