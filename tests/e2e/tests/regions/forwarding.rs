//! A full region forwards requests, and a client cannot make it do so.

use std::time::Duration;

use futures_util::StreamExt as _;
use isotherm_e2e::regions::{
    client, forwarded, occupy, returned, scripted_regions, wait_until_available,
    wait_until_connected, wait_until_unavailable,
};
use isotherm_e2e::scripted_replica::ReceivedRequest;
use isotherm_e2e::{
    Action, Client, MisbehavingPeer, ScriptedReplica, WAIT_MAX, admin, chat, expect_success,
    permit, send,
};
use isotherm_fingerprint::names;
use isotherm_harness::{Document, RegionsBuilder, wait_for};
use serde_json::json;

use crate::conversation::request_of_turn;

/// Headers that no replica may receive.
const INTERNAL: [&str; 10] = [
    names::FINGERPRINT,
    names::MODEL,
    names::TIER,
    names::TOKENS,
    names::STREAM,
    names::DECISION,
    names::CLUSTER,
    names::ORIGIN,
    names::TRIED,
    names::OUTCOME,
];

fn assert_no_internal_headers(received: &[ReceivedRequest]) {
    for request in received {
        for name in INTERNAL {
            let value = request.headers.get(name);
            assert!(value.is_none(), "a replica got {name}: {value:?}");
        }
    }
}

/// Lets the replica of `region` take more requests than any test sends between two heartbeats, instead of one. A response
/// reaches the client before the region knows that the request has ended, and a peer learns of it by the next heartbeat.
fn give_capacity(regions: RegionsBuilder, region: &'static str) -> RegionsBuilder {
    regions.service(move |name: &str, config: &mut Document| {
        if name == region {
            config.set("pools/0/push", "outstanding:64")?;
        }
        Ok(())
    })
}

#[tokio::test]
async fn a_full_region_forwards_and_a_conversation_stays_in_the_region_it_went_to()
-> anyhow::Result<()> {
    const TOPICS: usize = 4;
    const TURNS: usize = 3;
    let _permit = permit::shared().await?;
    let [us, eu, asia] = ScriptedReplica::start_all(["us", "eu", "asia"]).await?;
    let regions = scripted_regions("forwarding", &[&us, &eu, &asia], 1);
    let regions = give_capacity(give_capacity(regions, "eu"), "asia")
        .start()
        .await?;
    wait_until_connected(&regions).await?;
    let busy = occupy(&regions, &us).await?;
    let client = client(&regions, "us")?;
    for peer in ["eu", "asia"] {
        wait_until_available(&regions, "us", peer).await?;
    }

    for topic in 0..TOPICS {
        let mut region = None;
        for turn in 0..TURNS {
            let body = request_of_turn(&format!("topic {topic}"), turn);
            let response = send(client.post_chat(&body)).await?.success()?;
            let served_by = response.served_by().map(str::to_owned);
            assert_ne!(served_by.as_deref(), Some("us"), "us is full");
            let decision = response.header(names::DECISION);
            let first = region.get_or_insert(served_by.clone());
            assert_eq!(first, &served_by, "turn {turn}: {decision:?}");
        }
    }

    let sent = forwarded(&regions, "us", "eu").await? + forwarded(&regions, "us", "asia").await?;
    assert_eq!(sent, u64::try_from(TOPICS * TURNS)?);
    assert_eq!(returned(&regions, "us", "eu").await?, 0);
    assert_eq!(returned(&regions, "us", "asia").await?, 0);
    for region in ["eu", "asia"] {
        let service = regions.region(region)?.service();
        let sent = admin::counter(service, "isotherm_forwarded_total", &[]).await?;
        assert_eq!(sent, 0, "{region} forwarded a forwarded request");
    }
    for replica in [&eu, &asia] {
        assert_no_internal_headers(&replica.received());
    }
    us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}

/// Number of decision streams of an Envoy with one worker: two threads, and a stream of each for clients and for regions.
const STREAMS: u64 = 4;

#[tokio::test]
async fn a_request_takes_the_decision_stream_in_each_region_that_it_reaches() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let regions = give_capacity(scripted_regions("forwarding-stream", &[&us, &eu], 1), "eu");
    let regions = regions.start().await?;
    wait_until_connected(&regions).await?;
    for name in ["us", "eu"] {
        let envoy = regions.region(name)?.envoy();
        envoy.wait_for_decision_streams(STREAMS).await?;
    }
    let asked = async || {
        let mut asked = Vec::new();
        for (name, listener) in [("us", "llm"), ("us", "again"), ("eu", "regions")] {
            let stat = format!("http.{listener}.ext_proc.isotherm.streams_started");
            asked.push(regions.region(name)?.envoy().stat(&stat).await?);
        }
        anyhow::Ok(asked)
    };
    let before = asked().await?;
    let busy = occupy(&regions, &us).await?;
    wait_until_available(&regions, "us", "eu").await?;
    let client = client(&regions, "us")?;

    let response = send(client.post_chat(&chat("to eu"))).await?.success()?;
    assert_eq!(response.served_by(), Some("eu"));
    let decision = response.header(names::DECISION).unwrap_or_default();
    assert!(decision.starts_with("region=eu;"), "{decision}");
    assert!(decision.ends_with(";origin=us"), "{decision}");
    for _attempt in 0..2 {
        eu.push_action(Action::Status(503));
    }
    let back = client.spawn_chat("comes back");
    wait_for(WAIT_MAX, "the request to come back", async || {
        let returned = returned(&regions, "us", "eu").await?;
        Ok((returned == 1).then_some(()))
    })
    .await?;
    us.release_all();
    assert_eq!(back.await??.success()?.served_by(), Some("us"));
    busy.await??.success()?;
    assert_eq!(
        asked().await?,
        before,
        "no request took external processing"
    );
    assert_no_internal_headers(&eu.received());
    assert_no_internal_headers(&us.received());
    Ok(())
}

/// eu is full, and more requests wait there than let it take others, while its peering reports free capacity.
#[tokio::test]
async fn a_refused_request_is_decided_again_and_a_peer_that_reports_false_capacity_loses_credit()
-> anyhow::Result<()> {
    const REQUESTS: usize = 40;
    const WAITING: u64 = 5;
    let _permit = permit::shared().await?;
    let [us, eu, asia] = ScriptedReplica::start_all(["us", "eu", "asia"]).await?;
    let misbehaving = MisbehavingPeer::start().await?;
    let regions = scripted_regions("refused", &[&us, &eu, &asia], 1).plaintext();
    // A request that asia refuses as well waits in us until us has capacity: until the test ends.
    let regions = give_capacity(regions, "asia").start().await?;
    // The misbehaving peer replaces eu's service for us; eu keeps its own clients' requests.
    let link = regions.link("us", "eu")?;
    link.peering.connect_to(vec![misbehaving.address()]);
    link.conditions.reset_connections();
    wait_until_connected(&regions).await?;
    for peer in ["us", "asia"] {
        regions.link("eu", peer)?.conditions.cut();
        wait_until_unavailable(&regions, "eu", peer).await?;
    }
    let round_trip = Duration::from_millis(100);
    regions
        .link("us", "asia")?
        .conditions
        .set_round_trip(round_trip);
    let busy_us = occupy(&regions, &us).await?;
    let busy_eu = occupy(&regions, &eu).await?;
    let client_eu = client(&regions, "eu")?;
    let waiting = (0..WAITING).map(|number| client_eu.spawn_chat(&format!("{number} waits in eu")));
    let waiting = Vec::from_iter(waiting);
    admin::wait_for_pool(regions.region("eu")?.service(), "queue_length", WAITING).await?;

    let client = client(&regions, "us")?;
    for number in 0..REQUESTS {
        wait_until_available(&regions, "us", "asia").await?;
        let body = chat(&format!("number {number}"));
        let response = client.chat(&format!("s{number}"), &body).await?.success()?;
        assert_eq!(response.served_by(), Some("asia"));
        assert_eq!(response.header(names::REFUSED), None);
    }

    let sent = forwarded(&regions, "us", "eu").await?;
    assert!(sent > 0, "no request went to the misbehaving peer");
    assert_eq!(sent, returned(&regions, "us", "eu").await?);
    assert!(
        usize::try_from(sent)? < REQUESTS / 2,
        "{sent} of {REQUESTS} requests went to the misbehaving peer"
    );
    assert_eq!(eu.received().len(), 1, "eu is full");
    us.release_all();
    eu.release_all();
    expect_success([busy_us, busy_eu].into_iter().chain(waiting)).await
}

#[tokio::test]
async fn a_client_cannot_forge_the_origin_of_its_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let regions = scripted_regions("forged-origin", &[&us, &eu], 1);
    let regions = give_capacity(regions, "eu").start().await?;
    wait_until_connected(&regions).await?;
    let forge = |client: &Client, number: usize| {
        let origin = if number.is_multiple_of(2) { "eu" } else { "us" };
        client
            .post_chat(&chat(&format!("number {number}")))
            .header(names::ORIGIN, origin)
            .header(names::TRIED, "eu")
            .header(names::CLUSTER, "region-eu")
            .header("x-isotherm-listener", "regions")
    };
    let service = regions.region("us")?.service();

    // A region with capacity serves its own clients, whatever their headers are.
    let client_us = client(&regions, "us")?;
    for number in 0..4 {
        let response = send(forge(&client_us, number)).await?;
        assert_eq!((response.status, response.served_by()), (200, Some("us")));
        admin::wait_until_idle(service).await?;
    }
    assert_eq!(forwarded(&regions, "us", "eu").await?, 0);

    // A full region forwards: it took the requests neither for forwarded requests nor for refused ones.
    let busy = occupy(&regions, &us).await?;
    for number in 4..8 {
        wait_until_available(&regions, "us", "eu").await?;
        let response = send(forge(&client_us, number)).await?;
        assert_eq!((response.status, response.served_by()), (200, Some("eu")));
    }
    assert_eq!(forwarded(&regions, "us", "eu").await?, 4);
    let accepted = admin::counter(service, "isotherm_forwarded_in_total", &[]).await?;
    assert_eq!(accepted, 0, "us accepted forwarded requests");

    // The gateway refuses a client without a region's certificate.
    let gateway = regions.link("us", "eu")?.gateway.address();
    let intruder = Client::new(&format!("http://{gateway}"))?;
    send(forge(&intruder, 0)).await.unwrap_err();
    assert_eq!(eu.received().len(), 4);
    assert_no_internal_headers(&us.received());
    assert_no_internal_headers(&eu.received());
    us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn large_bodies_streams_and_aborts_pass_between_regions() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = ScriptedReplica::start_all(["us", "eu"]).await?;
    let regions = scripted_regions("bodies", &[&us, &eu], 1).round_trip(Duration::from_millis(20));
    let regions = give_capacity(regions, "eu").start().await?;
    wait_until_connected(&regions).await?;
    let busy = occupy(&regions, &us).await?;
    let client = client(&regions, "us")?;

    // 2 MB arrive whole.
    let body = chat(&"A long prompt that crosses the sea. ".repeat(58_000));
    let response = client.chat("large", &body).await?;
    assert_eq!((response.status, response.served_by()), (200, Some("eu")));
    let received = eu.received().pop().unwrap();
    assert!(received.body.len() > 2_000_000);
    assert_eq!(received.body, serde_json::to_vec(&body)?);

    // A stream passes chunk by chunk: eu sends the second chunk after the client has read the first.
    wait_until_available(&regions, "us", "eu").await?;
    eu.push_action(Action::Stream);
    let mut body = chat("stream");
    body["stream"] = json!(true);
    let mut chunks = client.post_chat(&body).send().await?.bytes_stream();
    let first = tokio::time::timeout(WAIT_MAX, chunks.next())
        .await?
        .unwrap()?;
    assert!(String::from_utf8_lossy(&first).contains("one"));
    eu.release(1);
    let mut rest = Vec::new();
    while let Some(chunk) = chunks.next().await {
        rest.extend(chunk?);
    }
    assert!(String::from_utf8_lossy(&rest).contains("[DONE]"));

    // A client that disconnects, before the first byte or after it, ends the request in both regions.
    for action in [Action::Hold, Action::Stream] {
        wait_until_available(&regions, "us", "eu").await?;
        eu.push_action(action);
        let response = tokio::spawn(send(client.post_chat(&body)));
        eu.wait_until_holding(1).await?;
        response.abort();
        eu.wait_until_holding(0).await?;
        let service = regions.region("eu")?.service();
        admin::wait_for_replica(service, eu.address(), "outstanding", 0).await?;
        let (service, labels) = (regions.region("us")?.service(), [("region", "eu")]);
        admin::wait_for_metric(service, "isotherm_forwarded_in_flight", &labels, |count| {
            count < 0.5
        })
        .await?;
    }

    // Envoy could not send this body a second time, so its request is not forwarded.
    let sent = forwarded(&regions, "us", "eu").await?;
    let large = client.spawn_chat(&"x".repeat(4 * 1024 * 1024));
    admin::wait_for_pool(regions.region("us")?.service(), "queue_length", 1).await?;
    us.release_all();
    let response = large.await??;
    assert_eq!((response.status, response.served_by()), (200, Some("us")));
    assert_eq!(forwarded(&regions, "us", "eu").await?, sent);
    assert_eq!(busy.await??.status, 200);
    assert_no_internal_headers(&eu.received());
    Ok(())
}
