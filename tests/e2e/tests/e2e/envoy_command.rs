//! `isotherm envoy`: configurations of other owners, with Isotherm added by one command, on a real Envoy.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use isotherm_e2e::fixture::scripted_as_shipped;
use isotherm_e2e::{Client, ScriptedReplica, admin, chat, permit, with_long_timeouts};
use isotherm_harness::tools::repository_file;
use isotherm_harness::{Document, Tools, port};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Configurations of the crate's tests, with the routes that become Isotherm's and further options.
const CONFIGURATIONS: [(&str, &[&str]); 13] = [
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
];

/// Two listeners with the same routes: one gets Isotherm, the other shows what reaches the application without it.
const OWNER: &str = r#"
# The gateway of an application and of engines.
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
    - name: llm
      address: LISTEN
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: llm
                generate_request_id: false
                route_config:
                  virtual_hosts:
                    - name: first
                      domains: ["*"]
                      routes:
                        - match: { prefix: /v1/ }
                          route: { cluster: engines, timeout: 300s }
                        - match: { prefix: / }
                          route: { cluster: app }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
    - name: without
      address: WITHOUT
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: without
                generate_request_id: false
                route_config:
                  virtual_hosts:
                    - { name: second, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: app } }] }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
    - name: engines
      type: STATIC
      load_assignment: { cluster_name: engines, endpoints: [] }
    - name: app
      type: STATIC
      load_assignment: { cluster_name: app, endpoints: [{ lb_endpoints: [{ endpoint: { address: APP } }] }] }
"#;

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

/// An application that sends what it receives to a channel, and answers each request.
async fn application() -> anyhow::Result<(SocketAddr, mpsc::Receiver<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (sender, receiver) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move { answer(stream, sender).await });
        }
    });
    Ok((address, receiver))
}

async fn answer(mut stream: TcpStream, sender: mpsc::Sender<String>) -> anyhow::Result<()> {
    let mut received = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        ensure!(count > 0, "the connection ended");
        received.push_str(&text(buffer.get(..count).unwrap_or_default()));
        if received.ends_with("{\"model\":\"x\"}") {
            sender.send(std::mem::take(&mut received)).await?;
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                .await?;
        }
    }
}

/// Sends a request of the application's client; returns the response.
async fn post(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = "POST /a%2Fb//c?d HTTP/1.1\r\nhost: app\r\nx-override-theme: dark\r\nx-vllm-like: 1\r\n\
                   content-length: 13\r\nconnection: close\r\n\r\n{\"model\":\"x\"}";
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await?;
    Ok(text(&response))
}

#[tokio::test]
async fn an_added_route_has_decisions_and_another_route_the_same_bytes_as_without_isotherm()
-> anyhow::Result<()> {
    const REQUESTS: u64 = 4;
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let (app, mut received) = application().await?;
    let reserved = port::reserve()?;
    let without = reserved.address();
    let stack = scripted_as_shipped("envoy-add", &[&a, &b], 8).envoy(move |document| {
        *document = add(document, OWNER, &[("WITHOUT", without), ("APP", app)])?;
        Ok(())
    });
    let stack = with_long_timeouts(stack).start().await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..REQUESTS {
        let body = chat(&format!("number {number}"));
        client.chat(&format!("s{number}"), &body).await?.success()?;
    }
    admin::wait_for_pool(stack.service(), "counters/finished_ok", REQUESTS).await?;
    assert_eq!(a.received().len() + b.received().len(), 4);

    let with = post(stack.envoy().address()).await?;
    let plain = post(without).await?;
    ensure!(
        with.starts_with("HTTP/1.1 200") && plain.starts_with("HTTP/1.1 200"),
        "{with}{plain}"
    );
    let with = received.recv().await.context("no request")?;
    let plain = received.recv().await.context("no request")?;
    assert_eq!(with, plain);
    Ok(())
}
