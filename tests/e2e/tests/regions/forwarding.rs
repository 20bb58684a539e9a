//! A region that is full hands its requests on, and nobody else can make it do so.

use std::time::Duration;

use futures_util::StreamExt as _;
use isotherm_e2e::regions::{available, forwarded, meet, returned, scripted, series, unavailable};
use isotherm_e2e::scripted_replica::ReceivedRequest;
use isotherm_e2e::{
    Action, Client, HttpResponse, MisbehavingPeer, ReportedPool, ScriptedReplica, WAIT_MAX, admin,
    chat, permit,
};
use isotherm_fingerprint::names;
use isotherm_harness::{Regions, wait_for};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::conversation::turn_of;

/// What no replica gets.
const INTERNAL: [&str; 9] = [
    names::FINGERPRINT,
    names::MODEL,
    names::TIER,
    names::TOKENS,
    names::DECISION,
    names::CLUSTER,
    names::ORIGIN,
    names::TRIED,
    names::OUTCOME,
];

fn client(regions: &Regions, region: &str) -> anyhow::Result<Client> {
    Client::new(&regions.region(region)?.url(""))
}

/// Fills a region whose only replica takes one request: the answer comes when it is let go.
async fn fill(
    regions: &Regions,
    region: &str,
    replica: &ScriptedReplica,
) -> anyhow::Result<JoinHandle<anyhow::Result<HttpResponse>>> {
    replica.set_action(Action::Hold);
    let client = client(regions, region)?;
    let body = chat(&format!("What keeps {region} busy"));
    let task = tokio::spawn(async move { client.chat("busy", &body).await });
    replica.wait_until_holding(1).await?;
    Ok(task)
}

fn nothing_internal(seen: &[ReceivedRequest]) {
    for request in seen {
        for name in INTERNAL {
            let value = request.headers.get(name);
            assert!(value.is_none(), "a replica got {name}: {value:?}");
        }
    }
}

#[tokio::test]
async fn a_full_region_hands_on_and_a_conversation_stays_where_it_went() -> anyhow::Result<()> {
    const TOPICS: usize = 4;
    const TURNS: usize = 3;
    let _permit = permit::shared().await?;
    let [us, eu, asia] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
        ScriptedReplica::start("asia").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 3] =
        [("us", &[&us]), ("eu", &[&eu]), ("asia", &[&asia])];
    let regions = scripted("handed-on", &sites, 1)
        .service(|region, config| {
            // With room for one only, a peer whose heartbeat was asked for during a request has no room for the next.
            let outstanding_max = if region == "us" { 1 } else { 8 };
            config.set("pools/0/outstanding_max", outstanding_max)?;
            // On a machine with too much to do a peer may be late by more than three of the usual intervals, and then the
            // other one is right.
            config.set("region/heartbeat_ms", 2_000)
        })
        .start()
        .await?;
    meet(&regions, &["us", "eu", "asia"]).await?;
    let busy = fill(&regions, "us", &us).await?;
    let client = client(&regions, "us")?;
    for peer in ["eu", "asia"] {
        available(&regions, "us", peer).await?;
    }

    for topic in 0..TOPICS {
        let mut went = None;
        for number in 0..TURNS {
            let body = turn_of(&format!("topic {topic}"), number);
            let request = client.post("/v1/chat/completions", &body);
            let answer = HttpResponse::to(request).await?;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let served = answer.served_by().map(str::to_owned);
            assert_ne!(served.as_deref(), Some("us"), "it is full");
            let why = answer.header(names::DECISION);
            assert_eq!(
                went.get_or_insert(served.clone()),
                &served,
                "turn {number}: {why:?}"
            );
        }
    }

    let sent = forwarded(&regions, "us", "eu").await? + forwarded(&regions, "us", "asia").await?;
    assert_eq!(sent, u64::try_from(TOPICS * TURNS)?);
    assert_eq!(returned(&regions, "us", "eu").await?, 0);
    assert_eq!(returned(&regions, "us", "asia").await?, 0);
    // Nobody sends a guest on.
    for region in ["eu", "asia"] {
        let service = regions.region(region)?.service();
        let on = admin::metric(service, "isotherm_forwarded_total").await?;
        assert!(on < 0.5, "{region} sent {on} on");
    }
    for replica in [&eu, &asia] {
        nothing_internal(&replica.received());
    }
    us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn what_a_full_region_refuses_is_decided_anew_and_a_liar_is_found_out() -> anyhow::Result<()>
{
    const REQUESTS: usize = 40;
    let _permit = permit::shared().await?;
    let [us, eu, asia] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
        ScriptedReplica::start("asia").await?,
    ];
    let claim = ReportedPool {
        available: 50,
        free_capacity: 1000,
        queue: 0,
    };
    let misbehaving = MisbehavingPeer::start("eu", claim).await?;
    let sites: [(&str, &[&ScriptedReplica]); 3] =
        [("us", &[&us]), ("eu", &[&eu]), ("asia", &[&asia])];
    let regions = scripted("refused", &sites, 1)
        .plaintext()
        .service(|_, config| config.set("region/queue_max", 0))
        .start()
        .await?;
    // What eu says of itself does not come from eu; eu itself must keep what its own clients ask.
    let link = regions.link("us", "eu")?;
    link.peering().connect_to(vec![misbehaving.address()]);
    link.conditions().reset_connections();
    meet(&regions, &["us", "eu", "asia"]).await?;
    for peer in ["us", "asia"] {
        regions.link("eu", peer)?.conditions().cut();
        unavailable(&regions, "eu", peer).await?;
    }
    regions
        .link("us", "asia")?
        .conditions()
        .set_round_trip(Duration::from_millis(100));
    let busy_us = fill(&regions, "us", &us).await?;
    let busy_eu = fill(&regions, "eu", &eu).await?;
    let waiting = {
        let client = client(&regions, "eu")?;
        tokio::spawn(async move { client.chat("waiting", &chat("it waits in eu")).await })
    };
    admin::becomes(regions.region("eu")?.service(), "queue_length", 1).await?;

    let client = client(&regions, "us")?;
    for number in 0..REQUESTS {
        // The answer is here a moment before its end is known to the service, and a region that still counts it would
        // refuse the next: then both have refused, and it waits in us for good.
        let service = regions.region("asia")?.service();
        admin::replica_becomes(service, asia.address(), "outstanding", 0).await?;
        available(&regions, "us", "asia").await?;
        let answer = client
            .chat(&format!("s{number}"), &chat(&format!("number {number}")))
            .await?;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.served_by(), Some("asia"));
        assert_eq!(answer.header(names::REFUSED), None);
    }

    let (sent, back) = (
        forwarded(&regions, "us", "eu").await?,
        returned(&regions, "us", "eu").await?,
    );
    assert!(sent > 0, "nothing was ever sent to the liar");
    assert_eq!(sent, back, "all of it came back");
    let believed = usize::try_from(sent)?;
    assert!(
        believed < REQUESTS / 2,
        "it was believed {believed} times of {REQUESTS}"
    );
    assert_eq!(eu.received().len(), 1, "it was full");
    us.release_all();
    eu.release_all();
    for answer in [busy_us, busy_eu, waiting] {
        assert_eq!(answer.await??.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn a_client_cannot_say_where_its_request_comes_from() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 2] = [("us", &[&us]), ("eu", &[&eu])];
    let regions = scripted("forged-origin", &sites, 1).start().await?;
    meet(&regions, &["us", "eu"]).await?;
    let forge = |client: &Client, number: usize| {
        let body = chat(&format!("number {number}"));
        client
            .post("/v1/chat/completions", &body)
            .header(
                names::ORIGIN,
                if number.is_multiple_of(2) { "eu" } else { "us" },
            )
            .header(names::TRIED, "eu")
            .header(names::CLUSTER, "region-eu")
            .header("x-isotherm-listener", "regions")
    };

    // A region with room serves its own clients, whatever they say.
    let client_us = client(&regions, "us")?;
    for number in 0..4 {
        let answer = HttpResponse::to(forge(&client_us, number)).await?;
        assert_eq!((answer.status, answer.served_by()), (200, Some("us")));
        // The answer is here a moment before its end is known to the service.
        let service = regions.region("us")?.service();
        admin::replica_becomes(service, us.address(), "outstanding", 0).await?;
    }
    assert_eq!(forwarded(&regions, "us", "eu").await?, 0);

    // A full one hands them on: they were not taken for guests, nor for requests that came back.
    let busy = fill(&regions, "us", &us).await?;
    for number in 4..8 {
        available(&regions, "us", "eu").await?;
        let answer = HttpResponse::to(forge(&client_us, number)).await?;
        assert_eq!((answer.status, answer.served_by()), (200, Some("eu")));
    }
    assert_eq!(forwarded(&regions, "us", "eu").await?, 4);
    let guests = admin::metric(
        regions.region("us")?.service(),
        "isotherm_forwarded_in_total",
    )
    .await?;
    assert!(guests < 0.5, "us counts {guests} guests");

    // And nobody without a certificate of a region gets in by the door of the regions.
    let gateway = regions.link("us", "eu")?.gateway().address();
    let intruder = Client::new(&format!("http://{gateway}"))?;
    HttpResponse::to(forge(&intruder, 0)).await.unwrap_err();
    assert_eq!(eu.received().len(), 4);
    nothing_internal(&us.received());
    nothing_internal(&eu.received());
    us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn large_bodies_streams_and_aborts_pass_between_regions() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 2] = [("us", &[&us]), ("eu", &[&eu])];
    let regions = scripted("bodies", &sites, 1)
        .round_trip(Duration::from_millis(20))
        .start()
        .await?;
    meet(&regions, &["us", "eu"]).await?;
    let busy = fill(&regions, "us", &us).await?;
    let client = client(&regions, "us")?;

    // 2 MB arrive whole.
    let body = chat(&"A long prompt that crosses the sea. ".repeat(58_000));
    let answer = client.chat("large", &body).await?;
    assert_eq!((answer.status, answer.served_by()), (200, Some("eu")));
    let seen = eu.received().pop().unwrap();
    assert!(seen.body.len() > 2_000_000);
    assert_eq!(seen.body, serde_json::to_vec(&body)?);

    // A stream passes piece by piece: the second half is made only after the first was read here.
    available(&regions, "us", "eu").await?;
    eu.push_action(Action::Stream);
    let mut body = chat("stream");
    body["stream"] = json!(true);
    let response = client.post("/v1/chat/completions", &body).send().await?;
    let mut pieces = response.bytes_stream();
    let first = tokio::time::timeout(WAIT_MAX, pieces.next())
        .await?
        .unwrap()?;
    assert!(String::from_utf8_lossy(&first).contains("one"));
    eu.release(1);
    let mut rest = Vec::new();
    while let Some(piece) = pieces.next().await {
        rest.extend(piece?);
    }
    assert!(String::from_utf8_lossy(&rest).contains("[DONE]"));

    // A client that goes away, before the first byte or after it, frees the place in both regions.
    for action in [Action::Hold, Action::Stream] {
        available(&regions, "us", "eu").await?;
        eu.push_action(action);
        let request = client.post("/v1/chat/completions", &body);
        let asked = tokio::spawn(async move {
            let response = request.send().await?;
            response.bytes().await
        });
        eu.wait_until_holding(1).await?;
        asked.abort();
        eu.wait_until_holding(0).await?;
        admin::replica_becomes(
            regions.region("eu")?.service(),
            eu.address(),
            "outstanding",
            0,
        )
        .await?;
        let service = regions.region("us")?.service();
        wait_for(WAIT_MAX, "nothing to be on its way to eu", || async {
            let name = "isotherm_forwarded_in_flight";
            let value = series(service, name, &[("region", "eu")]).await?;
            Ok(value.filter(|value| *value < 0.5).map(|_| ()))
        })
        .await?;
    }

    // What Envoy could not send a second time stays at home.
    let sent = forwarded(&regions, "us", "eu").await?;
    let body = chat(&"x".repeat(4 * 1024 * 1024));
    let large = tokio::spawn({
        let client = client.clone();
        async move { client.chat("too-large", &body).await }
    });
    admin::becomes(regions.region("us")?.service(), "queue_length", 1).await?;
    us.release_all();
    let answer = large.await??;
    assert_eq!((answer.status, answer.served_by()), (200, Some("us")));
    assert_eq!(forwarded(&regions, "us", "eu").await?, sent);
    assert_eq!(busy.await??.status, 200);
    nothing_internal(&eu.received());
    Ok(())
}
