//! The API server accepts every manifest as it is: a misspelt field is an error.

use std::fs;

use anyhow::ensure;
use isotherm_e2e::permit;
use isotherm_harness::ControlPlane;
use isotherm_harness::control_plane::Programs;
use isotherm_harness::mesh::objects::{documents, install_definitions, path_of};
use isotherm_harness::tools::{mesh_program, repository_file};
use serde_json::Value;

const FILES: [&str; 6] = [
    "deploy/mesh/ai-gateway.yaml",
    "deploy/mesh/envoy-gateway.yaml",
    "deploy/mesh/inference-pool.yaml",
    "deploy/mesh/istio.yaml",
    "deploy/mesh/istio-service.yaml",
    "deploy/mesh/standalone.yaml",
];

/// The chart's defaults, as helm rendered them.
const CHART: &str = "tests/mesh/golden/chart-defaults.json";

#[tokio::test]
async fn the_api_server_accepts_every_manifest() -> anyhow::Result<()> {
    let found = Programs::find().and_then(|programs| Ok((programs, mesh_program("crds")?)));
    let (programs, definitions) = match found {
        Ok(found) => found,
        Err(reason) => {
            eprintln!("skipped: {reason:#}");
            return Ok(());
        }
    };
    let _permit = permit::exclusive().await?;
    let plane = ControlPlane::start("mesh-manifests", &programs).await?;
    let chart = fs::read_to_string(repository_file(CHART))?;
    let mut objects: Vec<Value> = serde_json::from_str(&chart)?;
    for file in FILES {
        objects.extend(documents(&repository_file(file))?);
    }
    install_definitions(&plane, &definitions, &objects).await?;
    let mut refused = Vec::new();
    for object in &objects {
        let path = path_of(object) + "?dryRun=All&fieldValidation=Strict";
        if let Err(error) = plane.create(&path, object).await {
            refused.push(format!(
                "{} {}: {error:#}",
                object["kind"], object["metadata"]["name"]
            ));
        }
    }
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    Ok(())
}
