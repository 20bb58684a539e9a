//! Peers that cannot be trusted: one that never replies, one with a wrong certificate.

use isotherm_e2e::regions::{
    TAKEOVER_TIME, check_own_replicas, client, forwarded, occupy, peer_status, scripted_regions,
    wait_until_available, wait_until_connected, wait_until_unavailable,
};
use isotherm_e2e::{ScriptedReplica, WAIT_MAX, admin, chat, permit};
use isotherm_harness::{Authority, Regions, wait_for};
use tokio::net::TcpListener;

/// Sends a request to us while it is full; returns the region that served it.
async fn forward_from_us(
    regions: &Regions,
    us: &ScriptedReplica,
    prompt: &str,
) -> anyhow::Result<String> {
    let busy = occupy(regions, us).await?;
    let response = client(regions, "us")?
        .chat(prompt, &chat(prompt))
        .await?
        .success()?;
    us.release(1);
    assert_eq!(busy.await??.status, 200);
    // The next request that occupies us needs a free replica.
    admin::wait_until_idle(regions.region("us")?.service()).await?;
    Ok(response.served_by().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_peer_that_accepts_connections_and_never_replies_gets_no_requests() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let [us, eu, asia] = ScriptedReplica::start_all(["us", "eu", "asia"]).await?;
    let regions = scripted_regions("never-replies", &[&us, &eu, &asia], 1);
    let regions = regions.start().await?;
    wait_until_connected(&regions).await?;
    // The kernel accepts connections that no program reads from.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let link = regions.link("us", "eu")?;
    link.conditions.cut();
    link.peering.connect_to(vec![silent.local_addr()?]);
    wait_until_unavailable(&regions, "us", "eu").await?;
    link.conditions.restore();

    tokio::time::sleep(TAKEOVER_TIME).await;

    wait_until_unavailable(&regions, "us", "eu").await?;
    for number in 0..4 {
        wait_until_available(&regions, "us", "asia").await?;
        let region = forward_from_us(&regions, &us, &format!("n{number}")).await?;
        assert_eq!(region, "asia");
    }
    assert_eq!(forwarded(&regions, "us", "eu").await?, 0);
    // eu is alive: it renews its lease.
    check_own_replicas(&regions, &[&us]).await
}

#[tokio::test]
async fn a_wrong_certificate_excludes_a_region_until_it_is_replaced() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let [us, eu, asia] = ScriptedReplica::start_all(["us", "eu", "asia"]).await?;
    let replicas = [&us, &eu, &asia];
    let regions = scripted_regions("certificate", &replicas, 1)
        .start()
        .await?;
    wait_until_connected(&regions).await?;
    let certificates = regions.certificates("eu");
    let unknown_authority = Authority::new()?;

    for wrong in ["of an unknown authority", "of another region"] {
        if wrong == "of an unknown authority" {
            unknown_authority.issue("eu", &certificates)?;
        } else {
            let (to_eu, to_asia) = (regions.link("us", "eu")?, regions.link("us", "asia")?);
            let links = [
                (&to_eu.peering, &to_asia.peering),
                (&to_eu.gateway, &to_asia.gateway),
            ];
            for (link, other) in links {
                link.connect_to(vec![other.address()]);
            }
        }
        reconnect(&regions, "eu")?;

        wait_for(
            WAIT_MAX,
            &format!("us to refuse a certificate {wrong}"),
            || async {
                let status = peer_status(&regions, "us", "eu").await?;
                // The service may have read the old certificate for this connection.
                if status["link"] == "up" {
                    reconnect(&regions, "eu")?;
                }
                Ok((status["link"] == "refused").then_some(()))
            },
        )
        .await?;
        tokio::time::sleep(TAKEOVER_TIME).await;
        let before = forwarded(&regions, "us", "eu").await?;
        wait_until_available(&regions, "us", "asia").await?;
        assert_eq!(forward_from_us(&regions, &us, wrong).await?, "asia");
        assert_eq!(forwarded(&regions, "us", "eu").await?, before);
        // eu renews its lease, so it keeps its replicas.
        check_own_replicas(&regions, &replicas).await?;

        regions.authority().issue("eu", &certificates)?;
        let link = regions.link("us", "eu")?;
        link.peering.connect_to_default();
        link.gateway.connect_to_default();
        reconnect(&regions, "eu")?;
        wait_until_connected(&regions).await?;
    }
    Ok(())
}

/// Ends all connections from and to a region, so that the regions open new ones.
fn reconnect(regions: &Regions, region: &str) -> anyhow::Result<()> {
    for other in regions.names().filter(|other| *other != region) {
        for link in regions.links_between(region, other)? {
            link.conditions.reset_connections();
        }
    }
    Ok(())
}
