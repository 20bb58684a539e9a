//! Sources of replicas, and the configuration file as it changes under the running service.

use std::time::Duration;

use crate::fake::service::{Service, TOKEN};
use crate::fake::wait_until;

fn config(static_replicas: &str, rest: &str) -> String {
    format!(
        "admin: {{ token_file: token }}\npools: [{{ model: llama, replicas: {{ static: [{static_replicas}] }}, {rest} }}]\n"
    )
}

const A: &str = "127.0.0.1:1001";
const B: &str = "127.0.0.1:1002";
const C: &str = "127.0.0.1:1003";

#[tokio::test]
async fn a_changed_file_is_applied_without_a_restart() {
    let service = Service::start(&config("'127.0.0.1:1001', '127.0.0.1:1002'", "")).await;
    wait_until("both are in", || service.replica_addresses() == [A, B]).await;
    service.write(&config(
        "'127.0.0.1:1002', '127.0.0.1:1003'",
        "policy: round_robin",
    ));
    wait_until("one went, one came", || {
        service.replica_addresses() == [B, C]
    })
    .await;
    let pools = service.pool_registry.pools();
    assert_eq!(
        pools[0].config().borrow().router.policy.name(),
        "round_robin"
    );
}

#[tokio::test]
async fn a_replaced_file_is_applied() {
    let service = Service::start(&config("'127.0.0.1:1001'", "")).await;
    wait_until("it is in", || service.replica_addresses() == [A]).await;
    let next = service.folder().join("next");
    std::fs::write(&next, config("'127.0.0.1:1002'", "")).unwrap();
    std::fs::rename(&next, &service.file).unwrap();
    wait_until("replaced", || service.replica_addresses() == [B]).await;
}

#[tokio::test]
async fn a_file_with_mistakes_is_refused_and_every_mistake_is_reported() {
    let service = Service::start(&config("'127.0.0.1:1001'", "")).await;
    wait_until("it is in", || service.replica_addresses() == [A]).await;
    service.write(&config("'127.0.0.1:1002', 'nowhere'", "polcy: random"));
    let (status, body) = service
        .request("POST", "/api/reload", Some(TOKEN), "")
        .await;
    assert_eq!(status, 422);
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("2 mistakes"), "{message}");
    assert!(
        message.contains("line 2, column") && message.contains("pools[0].polcy"),
        "{message}"
    );
    service.write("");
    let (status, body) = service
        .request("POST", "/api/reload", Some(TOKEN), "")
        .await;
    assert_eq!(status, 422, "{body}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(service.replica_addresses(), [A]);
    service.write(&config("'127.0.0.1:1002'", ""));
    wait_until("a good one is taken again", || {
        service.replica_addresses() == [B]
    })
    .await;
}

#[tokio::test]
async fn changes_by_an_operator_survive_a_reload() {
    let service = Service::start(&config("'127.0.0.1:1001', '127.0.0.1:1002'", "")).await;
    wait_until("both are in", || service.replica_addresses() == [A, B]).await;
    let new = format!("{{\"address\": \"{C}\"}}");
    assert_eq!(
        service
            .request("POST", "/api/replicas", Some(TOKEN), &new)
            .await
            .0,
        201
    );
    let first = format!("/api/replicas/{A}");
    assert_eq!(
        service.request("DELETE", &first, Some(TOKEN), "").await.0,
        204
    );
    assert_eq!(service.replica_addresses(), [B, C]);
    service.write(&config(
        "'127.0.0.1:1001', '127.0.0.1:1002'",
        "policy: random",
    ));
    let (status, body) = service
        .request("POST", "/api/reload", Some(TOKEN), "")
        .await;
    assert_eq!(status, 200, "{body}");
    wait_until("the policy is new", || {
        let pools = service.pool_registry.pools();
        pools[0].config().borrow().router.policy.name() == "random"
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(service.replica_addresses(), [B, C]);
}

#[tokio::test]
async fn a_reload_names_the_options_that_need_a_restart() {
    let service = Service::start(&config("", "")).await;
    let text = format!(
        "listen: ['127.0.0.1:9']\ndrain_ms_max: 1\nscaling: {{ keda_listen: '127.0.0.1:8' }}\n{}",
        config("", "")
    );
    service.write(&text);
    // The watcher may be faster: the file then differs from the running service all the same.
    let (status, body) = service
        .request("POST", "/api/reload", Some(TOKEN), "")
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        body["restart_needed_for"],
        serde_json::json!(["listen", "drain_ms_max", "scaling.keda_listen"])
    );
    service.write(&config("", ""));
    let (status, body) = service
        .request("POST", "/api/reload", Some(TOKEN), "")
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        body["restart_needed_for"],
        serde_json::json!([]),
        "put back"
    );
}

#[tokio::test]
async fn a_dns_name_yields_its_addresses() {
    let dns = "pools: [{ model: llama, replicas: { dns: localhost:1001 } }]";
    let service = Service::start(dns).await;
    wait_until("resolved", || {
        service.replica_addresses().contains(&A.to_owned())
    })
    .await;
    service.write("pools: [{ model: llama }]");
    wait_until("gone with the name", || {
        service.replica_addresses().is_empty()
    })
    .await;
}

#[tokio::test]
async fn pools_are_added_and_removed_with_the_file() {
    let service = Service::start("pools: [{ model: a }]").await;
    service.write("pools: [{ model: b, replicas: { static: ['127.0.0.1:1001'] } }]");
    wait_until("the new pool has its replica", || {
        let pools = service.pool_registry.pools();
        pools.len() == 1 && **pools[0].name() == *"b" && service.replica_addresses() == [A]
    })
    .await;
}
