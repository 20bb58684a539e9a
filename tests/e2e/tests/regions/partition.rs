//! The network between two regions breaks, while a third region reaches both.

use isotherm_e2e::regions::{
    TAKEOVER_TIME, check_own_replicas, check_succeeded_or_started, scripted_regions,
    wait_for_peer_state, wait_until_connected,
};
use isotherm_e2e::{LeaseMonitor, Load, ScriptedReplica, chat, permit};
use isotherm_harness::NetworkConditions;

#[tokio::test]
async fn a_partition_between_regions_takes_no_lease_and_heals() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu, asia] = ScriptedReplica::start_all(["us", "eu", "asia"]).await?;
    let replicas = [&us, &eu, &asia];
    let regions = scripted_regions("partition", &replicas, 2).start().await?;
    wait_until_connected(&regions).await?;
    let monitor = LeaseMonitor::start(&regions)?;
    let mut loads = Vec::new();
    for region in regions.names() {
        // More clients than the replica takes requests, so that regions forward.
        let prompt =
            |client: usize, turn: usize| chat(&format!("Request {turn} of {client}. ").repeat(20));
        loads.push(Load::start(&regions.region(region)?.url(""), 4, prompt)?);
    }

    let faults: [fn(&NetworkConditions); 2] =
        [NetworkConditions::blackhole, NetworkConditions::cut];
    for fault in faults {
        for link in regions.links_between("us", "eu")? {
            fault(&link.conditions);
        }

        wait_for_peer_state(&regions, "us", "eu", &["lost"]).await?;
        wait_for_peer_state(&regions, "eu", "us", &["lost"]).await?;
        tokio::time::sleep(TAKEOVER_TIME).await;
        check_own_replicas(&regions, &replicas).await?;
        for load in &loads {
            load.wait_for_requests(20).await?;
        }

        for link in regions.links_between("us", "eu")? {
            link.conditions.restore();
        }

        wait_until_connected(&regions).await?;
        check_own_replicas(&regions, &replicas).await?;
    }

    let mut records = Vec::new();
    for load in loads {
        records.extend(load.stop().await?);
    }
    check_succeeded_or_started(&regions, &records)?;
    assert_eq!(monitor.finish()?, 0, "replicas leased at the same time");
    Ok(())
}
