//! The API server accepts every manifest as it is: a misspelt field is an error.

use std::fs;
use std::process::Command;

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
/// Values of batch work: with SQLite, and with PostgreSQL.
const BATCH: [&str; 2] = [
    "batch.enabled=true,batch.url=http://llm,batch.keysSecret.name=keys",
    "batch.enabled=true,batch.url=http://llm,batch.keysSecret.name=keys,batch.work.replicas=2,batch.tlsSecretName=tls,\
     batch.tokenSecret.name=token,batch.database.postgresSecret.name=postgres",
];

/// The objects of batch work; none without helm.
fn batch_objects() -> anyhow::Result<Vec<Value>> {
    let helm = match mesh_program("helm") {
        Ok(helm) => helm,
        Err(reason) => {
            eprintln!("without batch work: {reason:#}");
            return Ok(Vec::new());
        }
    };
    let mut objects = Vec::new();
    for values in BATCH {
        let output = Command::new(&helm)
            .args(["template", "isotherm"])
            .arg(repository_file("deploy/helm/isotherm"))
            .args(["--kube-version", "1.37.0", "--set", values])
            .args(["--show-only", "templates/batch.yaml"])
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{values}: {error}");
        let text = String::from_utf8(output.stdout)?;
        objects.extend(serde_saphyr::from_multiple::<Value>(&text)?);
    }
    ensure!(objects.iter().any(|object| object["kind"] == "Deployment"));
    Ok(objects)
}

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
    objects.extend(batch_objects()?);
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
