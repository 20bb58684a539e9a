//! The pod of `deploy/mesh/standalone.yaml`: what Kubernetes does to stop it breaks no answer.

use std::fs;

use anyhow::{Context as _, ensure};
use isotherm_e2e::{Action, Client, ScriptedReplica, WAIT_MAX, chat, permit, scripted};
use isotherm_harness::tools::{repository_file, service_program};
use isotherm_harness::{Envoy, wait_for};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

const MANIFEST: &str = "deploy/mesh/standalone.yaml";
/// Envoy's admin interface in the pod, and the service's program there.
const ADMIN: &str = "127.0.0.1:9901";
const PROGRAM: &str = "/program/isotherm";

/// The `preStop` command of the container `envoy`, for this Envoy.
fn pre_stop(envoy: &Envoy) -> anyhow::Result<Command> {
    let text = fs::read_to_string(repository_file(MANIFEST))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let deployment = deployment.context("no Deployment")?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let container = containers.and_then(|all| all.iter().find(|one| one["name"] == "envoy"));
    let container = container.context("no container `envoy`")?;
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
