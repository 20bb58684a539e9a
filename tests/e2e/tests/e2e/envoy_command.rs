//! `isotherm envoy`: configurations of other owners, with Isotherm added by one command, on a real Envoy.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use isotherm_e2e::permit;
use isotherm_harness::tools::repository_file;
use isotherm_harness::{Document, Tools};
use serde_json::Value;
use tempfile::TempDir;

/// Configurations of the crate's tests, with the routes that become Isotherm's and further options.
const CONFIGURATIONS: [(&str, &[&str]); 18] = [
    ("lua-and-llm-route.yaml", &["--route=/v1/"]),
    ("shared-virtual-host.yaml", &["--route=llm"]),
    (
        "another-virtual-host.yaml",
        &["--route=/", "--virtual-host=llm"],
    ),
    ("jwt-per-route.yaml", &["--route=/v1/"]),
    ("provider-by-header.yaml", &["--route=/v1"]),
    (
        "short-times-and-weights.yaml",
        &["--route=/v1/(chat/)?completions", "--route=/v1/models"],
    ),
    ("rewritten-prefix.yaml", &["--route=/llm/"]),
    ("compression.yaml", &["--route=/v1/"]),
    ("shadow.yaml", &["--route=/v1/"]),
    ("sni-and-anchors.yaml", &["--route=/v1/"]),
    ("scoped-routes.yaml", &["--route=/v1/"]),
    (
        "authorization-and-tls-engines.yaml",
        &["--route=/v1/chat/completions", "--route=/v1/completions"],
    ),
    ("camel-case.json", &["--route=/v1/"]),
    ("tcp-beside-http.yaml", &["--route=/"]),
    ("redirects-and-methods.yaml", &["--route=llm"]),
    ("quic-beside-tcp.yaml", &["--route=/v1"]),
    ("routes-by-matcher.yaml", &["--route=/v1/"]),
    ("internal-listener-and-template.yaml", &["--route=chat"]),
];

/// Runs `isotherm envoy` with arguments.
fn isotherm(tools: &Tools, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(&tools.isotherm);
    Ok(command.arg("envoy").args(arguments).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asks Envoy whether it accepts a configuration.
fn validate(tools: &Tools, file: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(&tools.envoy);
    command
        .args(["--mode", "validate", "--log-level", "error", "-c"])
        .arg(file);
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}: {}",
        file.display(),
        text(&output.stderr)
    );
    Ok(())
}

#[tokio::test]
async fn one_command_adds_isotherm_to_configurations_that_envoy_accepts() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let module = format!("--filter={}", tools.filter.display());
    for (name, options) in CONFIGURATIONS {
        let owner = repository_file("ext-proc/envoy-config/tests/data").join(name);
        let file = folder.path().join(name);
        std::fs::copy(&owner, &file)?;
        let file = file.to_string_lossy();
        let mut arguments = vec!["add", "--in-place", &module];
        arguments.extend(options);
        arguments.push(&file);
        let output = isotherm(&tools, &arguments)?;
        ensure!(output.status.success(), "{name}: {}", text(&output.stderr));
        validate(&tools, Path::new(&*file))?;
        let output = isotherm(&tools, &["check", &file])?;
        ensure!(output.status.success(), "{name}: {}", text(&output.stdout));
        assert_eq!(text(&output.stdout), "no known mistakes\n", "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn a_new_configuration_is_one_that_envoy_accepts() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let folder = TempDir::new()?;
    let file = folder.path().join("envoy.yaml");
    let output = format!("--output={}", file.display());
    let module = format!("--filter={}", tools.filter.display());
    let pool = ["--model=a", "--cluster=first", "--replica=127.0.0.1:8000"];
    let output = isotherm(
        &tools,
        &[&["new", &output, &module], pool.as_slice()].concat(),
    )?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("static: [\"127.0.0.1:8000\"]"),
        "{}",
        text(&output.stderr)
    );
    validate(&tools, &file)
}

#[tokio::test]
async fn a_refusal_prints_the_pieces_and_fails() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let tools = Tools::find()?;
    let file = repository_file("ext-proc/envoy-config/tests/data/discovery-by-files.yaml");
    let output = isotherm(&tools, &["add", "--route=/v1/", &file.to_string_lossy()])?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("dynamic_resources"),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stdout).contains("# In `static_resources.clusters`"));
    Ok(())
}

/// Adds Isotherm to an owner's configuration, at the address for clients and beside the service of a stack. `addresses` are
/// the values of further names.
pub(crate) fn add(
    shipped: &Document,
    owner: &str,
    addresses: &[(&str, SocketAddr)],
) -> anyhow::Result<Document> {
    let tools = Tools::find()?;
    let listen = shipped.get("static_resources/listeners/name=llm/address")?;
    let service = shipped.get("static_resources/clusters/name=isotherm/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address")?;
    let port = service
        .get("port_value")
        .and_then(Value::as_u64)
        .context("a port")?;
    let mut owner = owner.replace("LISTEN", &listen.to_string());
    for (name, address) in addresses {
        let (ip, port) = (address.ip(), address.port());
        let address = format!("{{ socket_address: {{ address: {ip}, port_value: {port} }} }}");
        owner = owner.replace(name, &address);
    }
    let folder = TempDir::new()?;
    let file = folder.path().join("envoy.yaml");
    std::fs::write(&file, owner)?;
    let file = file.to_string_lossy();
    let service = format!("--service=127.0.0.1:{port}");
    let module = format!("--filter={}", tools.filter.display());
    let output = isotherm(&tools, &["add", "--route=/v1/", &service, &module, &file])?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Document::parse(&text(&output.stdout))
}
