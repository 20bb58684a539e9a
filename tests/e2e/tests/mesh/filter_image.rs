//! The filter's image, as a release has it, in a real Envoy Gateway: from a registry to a routed request.

use std::fs;
use std::path::Path;

use anyhow::ensure;
use isotherm_e2e::admin::{counter, wait_until_idle};
use isotherm_e2e::{Client, MODEL, chat, permit};
use isotherm_harness::mesh::check_filter_image;
use isotherm_harness::synthetic_text::tokens;
use isotherm_harness::{Mesh, MeshGateway, Pool, Registry, Tools};
use isotherm_release::image;
use isotherm_release::release::Identity;

const REPOSITORY: &str = "isotherm-filter";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Length of a prompt of many blocks.
const PROMPT_TOKENS: u32 = 4_000;

#[tokio::test]
async fn envoy_gateway_fetches_the_image_by_its_tag_and_envoy_runs_it() -> anyhow::Result<()> {
    let found = check_filter_image().and_then(|()| Registry::find_programs());
    if let Err(reason) = found {
        eprintln!("skipped: {reason:#}");
        return Ok(());
    }
    let _permit = permit::exclusive().await?;
    let registry = Registry::start("filter-image-registry").await?;
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("isotherm-filter.oci.tar");
    write_image(&archive)?;
    let reference = registry.push(&archive, REPOSITORY, VERSION)?;
    let mesh = Mesh::builder("filter-image", MeshGateway::EnvoyGateway, Pool::new(MODEL))
        .filter_image(reference)
        .start()
        .await?;

    // The service gets headers only, so the prefix that it finds comes from the filter.
    let client = Client::new(&mesh.url(""))?;
    let prompt = chat(&tokens(1, PROMPT_TOKENS));
    for _ in 0..2 {
        client.chat("image", &prompt).await?.success()?;
        wait_until_idle(mesh.service()).await?;
    }
    let decisions = "isotherm_decisions_total";
    let by_prefix = counter(mesh.service(), decisions, &[("reason", "prefix")]).await?;
    ensure!(by_prefix >= 1, "no prefix is found");
    let traffic = mesh.service_traffic().await?;
    ensure!(traffic.request_bodies == 0, "request bodies: {traffic:?}");
    ensure!(
        fetches(&registry.log()) >= 1,
        "no image is fetched:\n{}",
        registry.log()
    );
    Ok(())
}

/// Writes the image of the tests' filter, as `cargo xtask release` does.
fn write_image(path: &Path) -> anyhow::Result<()> {
    let identity = Identity {
        version: VERSION.to_owned(),
        revision: "0000".to_owned(),
        time: 0,
        source: None,
        dynamic: true,
    };
    let module = fs::read(Tools::find()?.filter)?;
    Ok(fs::write(path, image::filter(&identity, &module)?.archive)?)
}

/// Number of layers that clients have read. `oras` only writes them.
fn fetches(log: &str) -> usize {
    let read = format!("GET /v2/{REPOSITORY}/blobs/");
    log.lines().filter(|line| line.contains(&read)).count()
}
