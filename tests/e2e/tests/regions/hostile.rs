//! Peers that are not what they seem: one that never answers, one with a wrong certificate, one in the network that
//! repeats what was said before.

use std::time::Duration;

use isotherm_e2e::regions::{
    available, becomes, forwarded, looks_after, meet, peer, scripted, series, unavailable,
};
use isotherm_e2e::{
    Action, Client, HttpResponse, ReplayingProxy, ScriptedReplica, WAIT_MAX, admin, chat, permit,
};
use isotherm_harness::{Authority, Regions, wait_for};
use tokio::net::TcpListener;

/// Longer than anyone waits before it adopts what it holds for dead.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

/// us is full, and so its request goes to another region: which one.
async fn goes_to(regions: &Regions, us: &ScriptedReplica, prompt: &str) -> anyhow::Result<String> {
    us.set_action(Action::Hold);
    let client = Client::new(&regions.region("us")?.url(""))?;
    let busy = tokio::spawn({
        let client = client.clone();
        async move { client.chat("busy", &chat("what keeps us busy")).await }
    });
    us.wait_until_holding(1).await?;
    let answer = client.chat(prompt, &chat(prompt)).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    us.set_action(Action::Respond);
    us.release(1);
    assert_eq!(busy.await??.status, 200);
    Ok(answer.served_by().unwrap_or_default().to_owned())
}

async fn three() -> anyhow::Result<[ScriptedReplica; 3]> {
    Ok([
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
        ScriptedReplica::start("asia").await?,
    ])
}

#[tokio::test]
async fn a_peer_that_accepts_and_never_answers_gets_nothing() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu, asia] = three().await?;
    let sites: [(&str, &[&ScriptedReplica]); 3] =
        [("us", &[&us]), ("eu", &[&eu]), ("asia", &[&asia])];
    let regions = scripted("never-answers", &sites, 1).start().await?;
    meet(&regions, &["us", "eu", "asia"]).await?;
    // The kernel accepts; nobody ever reads.
    let mute = TcpListener::bind("127.0.0.1:0").await?;
    let link = regions.link("us", "eu")?;
    link.conditions().cut();
    link.peering().connect_to(vec![mute.local_addr()?]);
    unavailable(&regions, "us", "eu").await?;
    link.conditions().restore();

    tokio::time::sleep(LONG_ENOUGH).await;

    unavailable(&regions, "us", "eu").await?;
    for number in 0..4 {
        available(&regions, "us", "asia").await?;
        assert_eq!(goes_to(&regions, &us, &format!("n{number}")).await?, "asia");
    }
    assert_eq!(forwarded(&regions, "us", "eu").await?, 0);
    let own = looks_after(regions.region("us")?).await?;
    assert_eq!(own, [us.address()], "eu lives: it asks, and asia hears it");
    Ok(())
}

#[tokio::test]
async fn a_wrong_certificate_shuts_a_region_out_until_it_is_right() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu, asia] = three().await?;
    let sites: [(&str, &[&ScriptedReplica]); 3] =
        [("us", &[&us]), ("eu", &[&eu]), ("asia", &[&asia])];
    let regions = scripted("certificate", &sites, 1).start().await?;
    let all = ["us", "eu", "asia"];
    meet(&regions, &all).await?;
    let files = regions.certificates("eu");
    let stranger = Authority::new()?;

    // Of an authority that nobody knows; and of ours, but another region's, which sits where eu should be.
    for wrong in ["stranger", "other name"] {
        if wrong == "stranger" {
            stranger.issue("eu", &files)?;
        } else {
            let (to_eu, to_asia) = (regions.link("us", "eu")?, regions.link("us", "asia")?);
            let wires = [
                (to_eu.peering(), to_asia.peering()),
                (to_eu.gateway(), to_asia.gateway()),
            ];
            for (wire, other) in wires {
                wire.connect_to(vec![other.address()]);
            }
        }
        reconnect(&regions, "eu")?;

        wait_for(WAIT_MAX, "us to refuse eu", || async {
            // A connection of before the change may still have come through.
            let link = peer(&regions, "us", "eu").await?["link"].clone();
            if link != "refused" {
                reconnect(&regions, "eu")?;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Ok((link == "refused").then_some(()))
        })
        .await
        .map_err(|error| error.context(wrong))?;
        tokio::time::sleep(LONG_ENOUGH).await;
        let before = forwarded(&regions, "us", "eu").await?;
        assert_eq!(goes_to(&regions, &us, wrong).await?, "asia");
        assert_eq!(forwarded(&regions, "us", "eu").await?, before);
        // It lives, and so its replicas stay its own.
        for (region, own) in [("us", &us), ("eu", &eu), ("asia", &asia)] {
            let replicas = looks_after(regions.region(region)?).await?;
            assert_eq!(replicas, [own.address()], "{region}");
        }

        regions.authority().issue("eu", &files)?;
        let link = regions.link("us", "eu")?;
        link.peering().connect_to_default();
        link.gateway().connect_to_default();
        reconnect(&regions, "eu")?;
        meet(&regions, &all).await?;
    }
    Ok(())
}

/// Ends all connections from and to a region, so that new ones are made.
fn reconnect(regions: &Regions, region: &str) -> anyhow::Result<()> {
    for other in regions.names().filter(|other| *other != region) {
        for link in regions.links_between(region, other)? {
            link.conditions().reset_connections();
        }
    }
    Ok(())
}

#[tokio::test]
async fn old_heartbeats_that_are_repeated_make_no_peer_look_better() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 2] = [("us", &[&us]), ("eu", &[&eu])];
    let regions = scripted("replay", &sites, 1).plaintext().start().await?;
    let link = regions.link("us", "eu")?;
    let eu_service = regions.region("eu")?;
    let mut config = eu_service.service().config_path();
    config.set_file_name("isotherm.yaml");
    let config = isotherm_harness::Document::read(&config)?;
    let listen = config.get("region/listen")?.as_str().unwrap_or_default();
    let replay = ReplayingProxy::start(listen.parse()?).await?;
    link.peering().connect_to(vec![replay.address()]);
    link.conditions().reset_connections();
    meet(&regions, &["us", "eu"]).await?;
    // Idle heartbeats have passed; now eu has no room, and us hears that.
    tokio::time::sleep(Duration::from_secs(2)).await;
    eu.set_action(Action::Hold);
    let client = Client::new(&regions.region("eu")?.url(""))?;
    let busy = tokio::spawn(async move { client.chat("busy", &chat("what keeps eu busy")).await });
    eu.wait_until_holding(1).await?;
    let service = regions.region("us")?.service();
    let room = async || series(service, "isotherm_peer_free_capacity", &[("region", "eu")]).await;
    wait_for(WAIT_MAX, "us to hear that eu is full", || async {
        Ok(room().await?.filter(|room| *room < 0.5).map(|_| ()))
    })
    .await?;

    replay.start_replaying();

    wait_for(WAIT_MAX, "a hundred repetitions", || async {
        let said = room().await?;
        assert_eq!(said, Some(0.0), "an old heartbeat was believed");
        Ok((replay.replayed() >= 100).then_some(()))
    })
    .await?;

    // And they keep nobody alive.
    regions.region("eu")?.service().suspend()?;
    let answered = replay.replayed();
    becomes(&regions, "us", "eu", &["lost", "dead"]).await?;
    assert!(replay.replayed() > answered);
    regions.region("eu")?.service().resume()?;
    becomes(&regions, "us", "eu", &["up"]).await?;
    eu.release_all();
    let answer: HttpResponse = busy.await??;
    assert_eq!(answer.status, 200);
    admin::becomes(regions.region("eu")?.service(), "queue_length", 0).await
}
