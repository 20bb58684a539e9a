//! The pod of `deploy/mesh/standalone.yaml`: what Kubernetes does to stop it breaks no answer.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Action, Client, ScriptedReplica, WAIT_MAX, chat, permit, scripted};
use isotherm_harness::tools::{Tools, repository_file, service_program};
use isotherm_harness::{Envoy, wait_for};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;

const MANIFEST: &str = "deploy/mesh/standalone.yaml";
/// Envoy's admin interface in the pod, and the service's program there.
const ADMIN: &str = "127.0.0.1:9901";
const PROGRAM: &str = "/program/isotherm";

/// The container `envoy` of the manifest.
fn envoy_container() -> anyhow::Result<Value> {
    let text = fs::read_to_string(repository_file(MANIFEST))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("no Deployment")?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let container = containers.and_then(|all| all.iter().find(|one| one["name"] == "envoy"));
    Ok(container.context("no container `envoy`")?.clone())
}

/// The `preStop` command of the container `envoy`, for this Envoy.
pub(super) fn pre_stop(envoy: &Envoy) -> anyhow::Result<Command> {
    let container = envoy_container()?;
    let command = &container["lifecycle"]["preStop"]["exec"]["command"];
    let command: Vec<String> = serde_json::from_value(command.clone())?;
    let (program, arguments) = command.split_first().context("an empty command")?;
    ensure!(program == PROGRAM, "the hook runs {program}");
    let admin = envoy.admin_url("");
    let admin = admin.trim_start_matches("http://");
    let mut hook = Command::new(service_program()?);
    hook.kill_on_drop(true);
    hook.args(
        arguments
            .iter()
            .map(|argument| argument.replace(ADMIN, admin)),
    );
    Ok(hook)
}

#[tokio::test]
async fn a_pod_that_stops_breaks_no_answer() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    replica.set_action(Action::Stream);
    let stack = scripted("pod-stops", &[&replica], 2).start().await?;
    let client = Client::new(&stack.url(""))?;
    let mut body = chat("a long answer");
    body["stream"] = true.into();
    let request = client.post_chat(&body);
    let answer = tokio::spawn(async move { isotherm_e2e::send(request).await });
    replica.wait_until_holding(1).await?;

    let mut hook = pre_stop(stack.envoy())?.spawn()?;
    wait_for(WAIT_MAX, "Envoy to drain", || async {
        let is_live = stack.envoy().stat("server.live").await?;
        Ok((is_live == 0).then_some(()))
    })
    .await?;
    // A client that has not heard of the stop is served, and told to connect anew.
    replica.push_action(Action::Respond);
    let late = client.chat("late", &chat("late")).await?.success()?;
    assert_eq!(late.header("connection"), Some("close"));
    assert!(hook.try_wait()?.is_none(), "the hook left a running answer");

    replica.release_all();
    let status = timeout(WAIT_MAX, hook.wait()).await??;
    assert!(status.success(), "{status}");
    let pid = stack.envoy().process().id().to_string();
    let stopped = Command::new("kill").args(["-TERM", &pid]).status().await?;
    assert!(stopped.success());
    let answer = answer.await??.success()?;
    assert!(
        answer.text().trim_end().ends_with("data: [DONE]"),
        "{}",
        answer.text()
    );
    Ok(())
}

#[tokio::test]
async fn a_hook_without_an_envoy_says_so() -> anyhow::Result<()> {
    let output = Command::new(service_program()?)
        .args(["drain-envoy", "--admin", "127.0.0.1:1"])
        .output()
        .await?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(error.contains("--admin gives its address"), "{error}");
    Ok(())
}

/// An Envoy that has no configuration but its admin interface and the pages that the manifest adds, with the two ports.
fn envoy_with_pages(directory: &Path) -> anyhow::Result<(Child, [u16; 2])> {
    let container = envoy_container()?;
    let arguments: Vec<String> = serde_json::from_value(container["args"].clone())?;
    let place = arguments.iter().position(|one| one == "--config-yaml");
    let pages = place.and_then(|place| arguments.get(place + 1));
    // Both are bound before they are released, so they differ.
    let free = (
        TcpListener::bind("127.0.0.1:0")?,
        TcpListener::bind("127.0.0.1:0")?,
    );
    let (admin, listener) = (free.0.local_addr()?.port(), free.1.local_addr()?.port());
    drop(free);
    let pages = pages.context("no pages")?.replace("0.0.0.0", "127.0.0.1");
    let pages = pages.replace("port_value: 9901", &format!("port_value: {admin}"));
    let pages = pages.replace("port_value: 19001", &format!("port_value: {listener}"));
    let socket = json!({ "address": "127.0.0.1", "port_value": admin });
    let file = directory.join("envoy.json");
    fs::write(
        &file,
        json!({ "admin": { "address": { "socket_address": socket } } }).to_string(),
    )?;
    let mut envoy = Command::new(Tools::find()?.envoy);
    envoy.kill_on_drop(true).arg("-c").arg(file);
    envoy.args([
        "--disable-hot-restart",
        "--log-level",
        "warning",
        "--concurrency",
        "1",
    ]);
    let envoy = envoy.args(["--config-yaml", &pages]).spawn()?;
    Ok((envoy, [admin, listener]))
}

#[tokio::test]
async fn the_pages_of_the_pod_show_metrics_and_whether_envoy_takes_requests() -> anyhow::Result<()>
{
    let _permit = permit::shared().await?;
    let directory = tempfile::tempdir()?;
    let (_envoy, [admin, pages]) = envoy_with_pages(directory.path())?;
    let client = reqwest::Client::new();
    let status = |path: &'static str| {
        let request = client.get(format!("http://127.0.0.1:{pages}{path}"));
        async move {
            let answer = request.send().await.ok();
            anyhow::Ok(answer.map(|answer| answer.status().as_u16()))
        }
    };
    let is = |expected: u16| move |found: Option<u16>| (found == Some(expected)).then_some(());
    wait_for(WAIT_MAX, "Envoy to be ready", || async {
        status("/ready").await.map(is(200))
    })
    .await?;
    let metrics = client.get(format!("http://127.0.0.1:{pages}/stats/prometheus"));
    let metrics = metrics.send().await?.error_for_status()?.text().await?;
    ensure!(metrics.contains("envoy_server_live"), "{metrics}");
    let other = status("/quitquitquit").await?;
    ensure!(other == Some(404), "the page that stops Envoy: {other:?}");

    let fail = format!("http://127.0.0.1:{admin}/healthcheck/fail");
    client.post(fail).send().await?.error_for_status()?;
    wait_for(WAIT_MAX, "Envoy to drain", || async {
        status("/ready").await.map(is(503))
    })
    .await
}
