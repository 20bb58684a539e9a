//! A region dies in part or whole, and its replicas live: one other region looks after them until it is back.

use std::time::{Duration, Instant};

use isotherm_e2e::load::check_all_succeeded;
use isotherm_e2e::regions::{GIVE_BACK_AFTER, becomes, meet, owns, recorded, scripted};
use isotherm_e2e::{AdoptionMonitor, Client, Load, ScriptedReplica, chat, permit};
use isotherm_harness::{Regions, RegionsBuilder};
use serde_json::Value;

const CLIENTS: usize = 4;
/// How long after a region is heard again, with its Envoy, its replicas are its own alone at the latest: the time that
/// it must have been healthy, and what a busy machine needs to say so.
const BACK_MAX: Duration = Duration::from_secs(2 + 15);

struct World {
    us: [ScriptedReplica; 2],
    eu: [ScriptedReplica; 2],
    asia: [ScriptedReplica; 2],
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let pair = async |name: &str| {
            anyhow::Ok([
                ScriptedReplica::start(&format!("{name}-0")).await?,
                ScriptedReplica::start(&format!("{name}-1")).await?,
            ])
        };
        Ok(Self {
            us: pair("us").await?,
            eu: pair("eu").await?,
            asia: pair("asia").await?,
        })
    }

    fn builder(&self, name: &str) -> RegionsBuilder {
        let [us, eu, asia] = [&self.us, &self.eu, &self.asia].map(|pair| pair.each_ref());
        scripted(name, &[("us", &us), ("eu", &eu), ("asia", &asia)], 8)
    }

    /// Each region looks after its own.
    async fn at_home(&self, regions: &Regions) -> anyhow::Result<()> {
        for (region, own) in [("us", &self.us), ("eu", &self.eu), ("asia", &self.asia)] {
            owns(regions, region, &own.each_ref()).await?;
        }
        Ok(())
    }
}

fn prompt(client: usize, turn: usize) -> Value {
    chat(&format!("Request {turn} of client {client}. ").repeat(20))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Service,
    Envoy,
    Both,
}

fn kill(regions: &mut Regions, region: &str, part: Part) -> anyhow::Result<()> {
    let stack = regions.region_mut(region)?;
    if part != Part::Service {
        stack.envoy_mut().kill()?;
    }
    if part != Part::Envoy {
        stack.service_mut().kill()?;
    }
    Ok(())
}

async fn repair(regions: &mut Regions, region: &str, part: Part) -> anyhow::Result<()> {
    let stack = regions.region_mut(region)?;
    if part != Part::Envoy {
        stack.service_mut().start().await?;
    }
    if part != Part::Service {
        stack.envoy_mut().restart().await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_nearest_region_adopts_and_gives_back() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let world = World::new().await?;
    // us is the nearest to eu.
    let mut regions = world
        .builder("adoption")
        .distance("us", "eu", Duration::from_millis(10))
        .distance("eu", "asia", Duration::from_millis(60))
        .distance("asia", "us", Duration::from_millis(60))
        .start()
        .await?;
    meet(&regions, &["us", "eu", "asia"]).await?;
    recorded(&regions, "eu", 2, "us").await?;
    let monitor = AdoptionMonitor::start(&regions)?;
    let loads = [
        Load::start(&regions.region("us")?.url(""), CLIENTS, prompt)?,
        Load::start(&regions.region("asia")?.url(""), CLIENTS, prompt)?,
    ];

    for part in [Part::Service, Part::Envoy, Part::Both] {
        kill(&mut regions, "eu", part)?;

        let both: Vec<&ScriptedReplica> = world.us.iter().chain(&world.eu).collect();
        owns(&regions, "us", &both).await?;
        if part == Part::Service {
            // Its Envoy goes on without it.
            let client = Client::new(&regions.region("eu")?.url(""))?;
            assert_eq!(client.chat("s", &chat("alone")).await?.status, 200);
        }
        for load in &loads {
            load.wait_for_requests(20).await?;
        }

        repair(&mut regions, "eu", part).await?;

        becomes(&regions, "us", "eu", &["up"]).await?;
        let heard = Instant::now();
        world.at_home(&regions).await?;
        let took = heard.elapsed();
        assert!(
            took < BACK_MAX,
            "{part:?}: given back {took:?} after eu was heard; it must be healthy for {GIVE_BACK_AFTER:?}"
        );
        for load in &loads {
            load.wait_for_requests(20).await?;
        }
        meet(&regions, &["us", "eu", "asia"]).await?;
        recorded(&regions, "eu", 2, "us").await?;
    }

    for load in loads {
        check_all_succeeded(&load.stop().await?)?;
    }
    assert_eq!(monitor.finish()?, 2, "replicas adopted at the most");
    Ok(())
}

#[tokio::test]
async fn one_region_looks_after_two_that_die_at_once() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let world = World::new().await?;
    // us is the nearest to both.
    let mut regions = world
        .builder("two-die")
        .distance("eu", "asia", Duration::from_millis(60))
        .start()
        .await?;
    meet(&regions, &["us", "eu", "asia"]).await?;
    for region in ["eu", "asia"] {
        recorded(&regions, region, 2, "us").await?;
    }
    let monitor = AdoptionMonitor::start(&regions)?;
    let load = Load::start(&regions.region("us")?.url(""), CLIENTS, prompt)?;
    load.wait_for_requests(10).await?;

    kill(&mut regions, "eu", Part::Both)?;
    kill(&mut regions, "asia", Part::Both)?;

    let all = [&world.us, &world.eu, &world.asia];
    let all: Vec<&ScriptedReplica> = all.into_iter().flatten().collect();
    owns(&regions, "us", &all).await?;
    load.wait_for_requests(20).await?;

    repair(&mut regions, "eu", Part::Both).await?;
    repair(&mut regions, "asia", Part::Both).await?;

    world.at_home(&regions).await?;
    load.wait_for_requests(10).await?;
    check_all_succeeded(&load.stop().await?)?;
    assert_eq!(monitor.finish()?, 4, "replicas adopted at the most");
    Ok(())
}
