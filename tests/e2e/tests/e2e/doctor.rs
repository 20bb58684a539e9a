//! `isotherm doctor` on a real Envoy: a healthy stack, and each missing link made for real.

use std::process::Command;

use anyhow::Context as _;
use isotherm_e2e::{Client, ScriptedReplica, engines, permit, scripted};
use isotherm_harness::{Document, Stack, StackBuilder, Tools, WAIT_MAX, envoy, port, wait_for};
use serde_json::{Value, json};

const CHAIN: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config";

/// The exit code and the names of the faults.
type Diagnosis = (i32, Vec<String>);

fn diagnose_at(envoy_admin: &str, admin: &str) -> anyhow::Result<Diagnosis> {
    let mut command = Command::new(Tools::find()?.isotherm);
    command.args([
        "doctor",
        "--json",
        "--envoy-admin",
        envoy_admin,
        "--admin",
        admin,
    ]);
    let output = command.output()?;
    let faults: Vec<Value> = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    for fault in &faults {
        println!("{fault}");
    }
    let names = faults.iter().filter_map(|fault| fault["name"].as_str());
    let code = output.status.code().context("ended by a signal")?;
    Ok((code, names.map(str::to_owned).collect()))
}

fn diagnose(stack: &Stack) -> anyhow::Result<Diagnosis> {
    diagnose_at(&stack.envoy().admin_url(""), &stack.service().admin_url(""))
}

/// Waits until the faults are these. Health checks and probes need some time to notice a change.
async fn wait_for_faults(stack: &Stack, expected: &[&str]) -> anyhow::Result<()> {
    let code = i32::from(!expected.is_empty());
    wait_for(WAIT_MAX, &format!("the faults {expected:?}"), async || {
        let found = diagnose(stack)?;
        Ok((found == (code, names(expected))).then_some(()))
    })
    .await
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Starts Envoy first: without a pool's endpoints the harness would wait for them.
async fn start_service_late(stack: StackBuilder) -> anyhow::Result<Stack> {
    let mut stack = stack.without_service().start().await?;
    stack.service_mut().start().await?;
    Ok(stack)
}

#[tokio::test]
async fn a_healthy_stack_has_no_fault_and_each_missing_program_is_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let mut stack = engines("doctor", 2, 10.0).start().await?;
    wait_for_faults(&stack, &[]).await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..4 {
        client
            .spawn_chat(&format!("number {number}"))
            .await??
            .success()?;
    }
    wait_for_faults(&stack, &[]).await?;

    let closed = port::reserve()?.address().to_string();
    let [envoy, admin] = [stack.envoy().admin_url(""), stack.service().admin_url("")];
    assert_eq!(diagnose_at(&closed, &admin)?, (1, names(&["no-envoy"])));
    assert_eq!(diagnose_at(&admin, &admin)?, (1, names(&["no-envoy"])));
    assert_eq!(diagnose_at(&envoy, &closed)?, (1, names(&["no-service"])));
    assert_eq!(diagnose_at(&envoy, &envoy)?, (1, names(&["no-service"])));

    stack.engine_mut(0)?.kill()?;
    wait_for_faults(&stack, &["dead-replica"]).await?;
    stack.engine_mut(0)?.restart().await?;
    wait_for_faults(&stack, &[]).await?;
    stack.service_mut().kill()?;
    wait_for_faults(&stack, &["no-service", "service-unreached"]).await
}

#[tokio::test]
async fn an_envoy_without_the_filter_is_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("doctor-no-filter", &[&replica], 8).envoy(|document| {
        let filters = document.get_mut(&format!("{CHAIN}/http_filters"))?;
        let filters = filters.as_array_mut().context("a list")?;
        filters.retain(|filter| {
            let name = filter["name"].as_str().unwrap_or_default();
            !name.starts_with("isotherm.")
        });
        let hosts = document.get_mut(&format!("{CHAIN}/route_config/virtual_hosts"))?;
        let plain = json!([{ "match": { "prefix": "/" }, "route": { "cluster": "llama" } }]);
        for host in hosts.as_array_mut().context("a list")? {
            host["routes"] = plain.clone();
        }
        Ok(())
    });
    let stack = stack.start().await?;
    wait_for_faults(&stack, &["no-filter"]).await
}

#[tokio::test]
async fn a_filter_on_no_route_is_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("doctor-no-route", &[&replica], 8).envoy(|document| {
        let route = "route_config/virtual_hosts/name=llm/routes/name=pool";
        document
            .remove(&format!("{CHAIN}/{route}/typed_per_filter_config"))
            .map(drop)
    });
    let stack = stack.start().await?;
    wait_for_faults(&stack, &["not-enabled"]).await
}

#[tokio::test]
async fn a_service_that_envoy_does_not_reach_is_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let other = port::reserve()?;
    let address = other.address();
    let stack =
        scripted("doctor-unreached", &[&replica], 8).envoy(move |document: &mut Document| {
            document.set(envoy::SERVICE_ADDRESS, envoy::socket_address(&address))
        });
    let stack = start_service_late(stack).await?;
    wait_for_faults(&stack, &["service-unreached"]).await
}

#[tokio::test]
async fn a_cluster_that_only_one_side_has_is_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("doctor-cluster", &[&replica], 8)
        .service(|config| config.set("pools/0/cluster", "lama"));
    let stack = start_service_late(stack).await?;
    wait_for_faults(&stack, &["no-pool-cluster", "no-pool"]).await
}

#[tokio::test]
async fn withheld_bodies_are_named() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("doctor-withheld", &[&replica], 8)
        .workers(1)
        .envoy(|document| {
            let path = "config/allow_on_headers_stop_iteration";
            envoy::set_in_filter(document, "isotherm.request", path, &json!(false))
        });
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..3 {
        client
            .spawn_chat(&format!("number {number}"))
            .await??
            .success()?;
    }
    wait_for_faults(&stack, &["bodies-withheld"]).await
}
