//! Requests that were handed to a region which then dies, before their first byte: they go elsewhere.

use isotherm_e2e::regions::{forwarded, meet, reaches, scripted, unavailable};
use isotherm_e2e::{
    Action, Client, HttpResponse, MisbehavingPeer, ReportedPool, ScriptedReplica, admin, chat,
    permit,
};
use isotherm_harness::Regions;
use tokio::task::JoinHandle;

type Asked = JoinHandle<anyhow::Result<HttpResponse>>;

struct World {
    us: ScriptedReplica,
    eu: ScriptedReplica,
    asia: ScriptedReplica,
    regions: Regions,
    _misbehaving: MisbehavingPeer,
}

/// us is full; the one request that eu takes is held there, and two wait in its queue. All three came from us, when it
/// did not reach asia, which has room. (So that it sends all three, whatever the moment of a heartbeat, somebody who
/// knows only good of eu speaks for it.)
async fn handed_to_eu(name: &str) -> anyhow::Result<(World, Asked, Vec<Asked>)> {
    let [us, eu, asia] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
        ScriptedReplica::start("asia").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 3] =
        [("us", &[&us]), ("eu", &[&eu]), ("asia", &[&asia])];
    let claim = ReportedPool {
        available: 50,
        free_capacity: 1000,
        queue: 0,
    };
    let misbehaving = MisbehavingPeer::start("eu", claim).await?;
    let regions = scripted(name, &sites, 1)
        .plaintext()
        .service(|_, config| config.set("region/adopt", false))
        .start()
        .await?;
    let link = regions.link("us", "eu")?;
    link.peering().connect_to(vec![misbehaving.address()]);
    link.conditions().reset_connections();
    meet(&regions, &["us", "eu", "asia"]).await?;
    us.set_action(Action::Hold);
    eu.set_action(Action::Hold);
    let client = Client::new(&regions.region("us")?.url(""))?;
    let ask = |number: usize| -> Asked {
        let client = client.clone();
        tokio::spawn(async move {
            let body = chat(&format!("number {number}"));
            client.chat(&format!("s{number}"), &body).await
        })
    };
    let busy = ask(0);
    us.wait_until_holding(1).await?;
    regions.link("us", "asia")?.conditions().cut();
    unavailable(&regions, "us", "asia").await?;
    let mut asked = vec![ask(1)];
    eu.wait_until_holding(1).await?;
    asked.extend([ask(2), ask(3)]);
    admin::becomes(regions.region("eu")?.service(), "queue_length", 2).await?;
    assert_eq!(forwarded(&regions, "us", "eu").await?, 3);
    regions.link("us", "asia")?.conditions().restore();
    reaches(&regions, "us", "asia").await?;
    let world = World {
        us,
        eu,
        asia,
        regions,
        _misbehaving: misbehaving,
    };
    Ok((world, busy, asked))
}

async fn served_by(asked: Vec<Asked>) -> anyhow::Result<Vec<String>> {
    let mut served = Vec::new();
    for answer in asked {
        let answer = answer.await??;
        assert_eq!(answer.status, 200, "{}", answer.text());
        served.push(answer.served_by().unwrap_or_default().to_owned());
    }
    Ok(served)
}

/// asia takes one at a time, and us stays full: some may wait in us until asia is free again. None comes back to eu.
#[tokio::test]
async fn what_waits_in_a_region_goes_on_elsewhere_when_its_envoy_dies() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (mut world, busy, asked) = handed_to_eu("envoy-dies").await?;

    world.regions.region_mut("eu")?.envoy_mut().kill()?;

    assert_eq!(served_by(asked).await?, ["asia"; 3]);
    assert_eq!(world.asia.received().len(), 3, "each was sent on once");
    assert_eq!(world.eu.received().len(), 1, "two waited in its queue");
    world.us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn what_waits_in_a_region_goes_on_elsewhere_when_its_service_dies() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (mut world, busy, mut asked) = handed_to_eu("service-dies").await?;

    world.regions.region_mut("eu")?.service_mut().kill()?;

    let waited = asked.split_off(1);
    assert_eq!(served_by(waited).await?, ["asia"; 2]);
    // What had a replica keeps it.
    world.eu.release_all();
    assert_eq!(served_by(asked).await?, ["eu"]);
    assert_eq!(
        (world.asia.received().len(), world.eu.received().len()),
        (2, 1)
    );
    world.us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}

#[tokio::test]
async fn what_waits_behind_a_network_that_falls_silent_goes_on_elsewhere() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (world, busy, asked) = handed_to_eu("silence").await?;

    // As seen from us, eu accepts everything and never answers.
    world.regions.link("us", "eu")?.conditions().blackhole();

    assert_eq!(served_by(asked).await?, ["asia"; 3]);
    assert_eq!(world.asia.received().len(), 3, "each was sent on once");
    world.us.release_all();
    assert_eq!(busy.await??.status, 200);
    Ok(())
}
