//! A prompt that breaks its replicas in another region does not come home.

use isotherm_e2e::regions::{
    client, forwarded, occupy, scripted_regions_of, wait_until_available, wait_until_connected,
};
use isotherm_e2e::{ScriptedReplica, chat, permit, send};

const DEADLY: &str = "the words that crash an engine";

#[tokio::test]
async fn a_forwarded_request_that_breaks_its_replicas_is_not_retried_at_home() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["us", "eu-1", "eu-2", "eu-3"]).await?;
    for replica in &replicas {
        replica.break_on(DEADLY);
    }
    let [us, a, b, c] = &replicas;
    let regions = scripted_regions_of("crashing", &[("us", &[us]), ("eu", &[a, b, c])], 1)
        .start()
        .await?;
    wait_until_connected(&regions).await?;
    let busy = occupy(&regions, us).await?;
    wait_until_available(&regions, "us", "eu").await?;
    let client = client(&regions, "us")?;
    let response = send(client.post_chat(&chat(DEADLY))).await?;

    assert_eq!(response.status, 503, "{}", response.text());
    assert_eq!(forwarded(&regions, "us", "eu").await?, 1);
    let broken: usize = [a, b, c].map(ScriptedReplica::broken).iter().sum();
    assert_eq!(broken, 2);
    us.release_all();
    busy.await??.success()?;
    assert_eq!(us.broken(), 0, "the request came home");
    Ok(())
}
