//! Shared parts of the tests: the network, engines, the service, requests, and objects of Kubernetes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{ControlPlane, MODEL, WAIT_MAX};
use isotherm_harness::process::Process;
use isotherm_harness::tools::{Tools, mesh_program, output_directory, service_program};
use isotherm_harness::{wait_for, wait_until};
use serde_json::{Value, json};

/// The service's address.
pub(crate) const SERVICE: &str = "10.77.0.1";
/// The engines' addresses.
pub(crate) const ENGINES: [&str; 2] = ["10.77.0.2", "10.77.0.3"];
/// The gateway's address.
pub(crate) const GATEWAY: &str = "10.77.0.4";
/// The engines' port, as in the manifests.
pub(crate) const ENGINE_PORT: u16 = 8000;

/// Words of the prompt that requests share: about 80 KB.
const PROMPT_WORDS: usize = 16_000;
/// Requests with that prompt.
const REQUESTS: u64 = 6;

/// The programs of the mesh; `None` means that the test is skipped.
pub(crate) fn programs<const N: usize>(names: [&str; N]) -> Option<[PathBuf; N]> {
    if std::env::var_os("ISOTHERM_MESH_NETWORK").is_none() {
        eprintln!("skipped: `cargo xtask test mesh` gives these tests a network");
        return None;
    }
    let found: anyhow::Result<Vec<PathBuf>> = names.into_iter().map(mesh_program).collect();
    let found = found
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()?;
    found.try_into().ok()
}

/// An empty folder for the files of a test.
pub(crate) fn folder(name: &str) -> anyhow::Result<PathBuf> {
    let folder = output_directory().join("stacks").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The documents of a YAML file.
pub(crate) fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let text = fs::read_to_string(path)?;
    serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())
}

/// Starts both engines.
pub(crate) async fn start_engines(folder: &Path) -> anyhow::Result<Vec<Process>> {
    let program = Tools::find()?.engine;
    let mut engines = Vec::new();
    for address in ENGINES {
        let mut command = Command::new(&program);
        command.args([
            "--listen",
            &format!("{address}:{ENGINE_PORT}"),
            "--model",
            MODEL,
        ]);
        command.args(["--preset", "llama-3.1-8b-l4", "--speed", "1000"]);
        let mut engine = Process::start(
            "engine",
            &mut command,
            &folder.join(format!("{address}.log")),
        )?;
        let is_listening =
            |log: String| std::future::ready(log.contains("listening on ").then_some(()));
        engine.wait_until_ready(WAIT_MAX, is_listening).await?;
        engines.push(engine);
    }
    Ok(engines)
}

/// Starts the service at its default ports, with these replicas.
pub(crate) async fn start_service(
    folder: &Path,
    replicas: &Value,
    kubeconfig: Option<&Path>,
) -> anyhow::Result<Process> {
    let config = json!({
        "listen": [format!("{SERVICE}:9002")],
        "admin": { "listen": format!("{SERVICE}:9090") },
        "pools": [{ "model": "*", "replicas": replicas }]
    });
    let file = folder.join("isotherm.yaml");
    fs::write(&file, config.to_string())?;
    let mut command = Command::new(service_program()?);
    command.arg("serve").arg("--config").arg(file);
    if let Some(kubeconfig) = kubeconfig {
        command.env("KUBECONFIG", kubeconfig);
    }
    let mut service = Process::start("isotherm", &mut command, &folder.join("isotherm.log"))?;
    let url = format!("http://{SERVICE}:9090/readyz");
    let is_ready = |_: String| async { reqwest::get(&url).await.ok()?.error_for_status().ok() };
    service.wait_until_ready(WAIT_MAX, is_ready).await?;
    Ok(service)
}

/// The sum of a metric of the service over the label sets that contain `label`.
async fn metric(name: &str, label: &str) -> anyhow::Result<f64> {
    let page = reqwest::get(format!("http://{SERVICE}:9090/metrics"))
        .await?
        .text()
        .await?;
    let lines = page
        .lines()
        .filter(|line| line.starts_with(name) && line.contains(label));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

/// Sends requests that share a prompt through a gateway. The service must find the prefix of the later ones, and learn what
/// became of each.
pub(crate) async fn expect_affinity(gateway: &str) -> anyhow::Result<()> {
    let prompt = "once upon ".repeat(PROMPT_WORDS / 2);
    let body = json!({
        "model": MODEL, "max_tokens": 2,
        "messages": [{ "role": "system", "content": prompt }, { "role": "user", "content": "Hello" }]
    });
    let client = reqwest::Client::new();
    let url = format!("http://{gateway}/v1/chat/completions");
    wait_until(WAIT_MAX, "the gateway to listen", || async {
        client.get(&url).send().await.is_ok()
    })
    .await?;
    let first = metric("isotherm_decisions_total", "").await?;
    for _ in 0..REQUESTS {
        let response = client.post(&url).json(&body).send().await?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status.is_success(), "{status}: {text}");
    }
    let decided = metric("isotherm_decisions_total", "").await? - first;
    let found = metric("isotherm_decisions_total", "reason=\"prefix\"").await?;
    let expected = f64::from(u32::try_from(REQUESTS)?);
    ensure!(
        decided >= expected && found >= expected - 1.0,
        "{decided} decisions, {found} by prefix"
    );
    wait_for(WAIT_MAX, "the outcomes", || async {
        let tokens = metric("isotherm_measured_prompt_tokens_total", "").await?;
        Ok((tokens > 0.0).then_some(()))
    })
    .await
}

/// Expects that the prompts of [`expect_affinity`] did not go to the service, by Envoy's statistics.
pub(crate) async fn expect_prompts_stayed(admin: &str, cluster: &str) -> anyhow::Result<()> {
    let url = format!("http://{admin}/stats?filter=upstream_cx_tx_bytes_total");
    let page = reqwest::get(url).await?.text().await?;
    let line = page
        .lines()
        .find(|line| line.contains(cluster))
        .context("no such cluster")?;
    let sent: u64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
    let prompt = u64::try_from("once upon ".len() * PROMPT_WORDS / 2)?;
    ensure!(
        sent > 0 && sent < prompt,
        "{sent} bytes to the service, {prompt} of each prompt"
    );
    Ok(())
}

/// The path of an object's kind in its namespace.
pub(crate) fn path_of(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind").to_lowercase());
    let root = if version.contains('/') {
        "/apis/"
    } else {
        "/api/"
    };
    let plural = match kind.strip_suffix('y') {
        Some(stem) if !stem.ends_with('a') => format!("{stem}ies"),
        _ => format!("{kind}s"),
    };
    let namespace = object["metadata"]["namespace"]
        .as_str()
        .unwrap_or("default");
    format!("{root}{version}/namespaces/{namespace}/{plural}")
}

/// Installs every custom resource definition that the mesh's programs bring, and waits until the server serves `kinds`.
pub(crate) async fn install_definitions(
    plane: &ControlPlane,
    folder: &Path,
    kinds: &[Value],
) -> anyhow::Result<()> {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let mut definitions = Vec::new();
    for entry in fs::read_dir(folder)? {
        let objects = documents(&entry?.path())?.into_iter();
        definitions.extend(objects.filter(|object| object["kind"] == "CustomResourceDefinition"));
    }
    plane
        .request_each(definitions, |definition| {
            ("POST", path.to_owned(), Some(definition))
        })
        .await?;
    for kind in kinds {
        let list = path_of(kind);
        let served = || async { Ok(plane.request("GET", &list, None).await.ok()) };
        wait_for(WAIT_MAX, &list, served).await?;
    }
    Ok(())
}
