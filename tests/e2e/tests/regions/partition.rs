//! The network between two regions breaks, while a third reaches both.

use std::time::Duration;

use isotherm_e2e::regions::{all_good_or_begun, becomes, looks_after, meet, scripted};
use isotherm_e2e::{AdoptionMonitor, Load, ScriptedReplica, chat, permit};
use isotherm_harness::{RegionLink, Regions};

/// Longer than anyone waits before it adopts what it holds for dead: three heartbeats, three probes.
const LONG_ENOUGH: Duration = Duration::from_secs(3);

async fn keep_their_own(
    regions: &Regions,
    sites: &[(&str, &ScriptedReplica)],
) -> anyhow::Result<()> {
    for (region, own) in sites {
        let replicas = looks_after(regions.region(region)?).await?;
        assert_eq!(replicas, [own.address()], "{region}");
    }
    Ok(())
}

#[tokio::test]
async fn a_partition_takes_nobodys_replicas_and_heals() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu, asia] = [
        ScriptedReplica::start("us").await?,
        ScriptedReplica::start("eu").await?,
        ScriptedReplica::start("asia").await?,
    ];
    let sites: [(&str, &[&ScriptedReplica]); 3] =
        [("us", &[&us]), ("eu", &[&eu]), ("asia", &[&asia])];
    let regions = scripted("partition", &sites, 2).start().await?;
    let all = ["us", "eu", "asia"];
    let own = [("us", &us), ("eu", &eu), ("asia", &asia)];
    meet(&regions, &all).await?;
    let monitor = AdoptionMonitor::start(&regions)?;
    let mut loads = Vec::new();
    for region in all {
        // More than the replica takes at a time, so that requests travel.
        let prompt =
            |client: usize, turn: usize| chat(&format!("Request {turn} of {client}. ").repeat(20));
        loads.push(Load::start(&regions.region(region)?.url(""), 4, prompt)?);
    }

    type Fault = fn(&RegionLink);
    let faults: [Fault; 2] = [
        |link| link.conditions().blackhole(),
        |link| link.conditions().cut(),
    ];
    for fault in faults {
        regions
            .links_between("us", "eu")?
            .into_iter()
            .for_each(fault);

        becomes(&regions, "us", "eu", &["lost"]).await?;
        becomes(&regions, "eu", "us", &["lost"]).await?;
        tokio::time::sleep(LONG_ENOUGH).await;
        keep_their_own(&regions, &own).await?;
        for load in &loads {
            load.wait_for_requests(20).await?;
        }

        for link in regions.links_between("us", "eu")? {
            link.conditions().restore();
        }

        meet(&regions, &all).await?;
        keep_their_own(&regions, &own).await?;
    }

    let mut records = Vec::new();
    for load in loads {
        records.extend(load.stop().await?);
    }
    all_good_or_begun(&regions, &all, &records)?;
    assert_eq!(monitor.finish()?, 0, "replicas adopted at the most");
    Ok(())
}
