//! The followers against a fake API server that pages, ends, breaks and refuses as a real one does.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at what it did not expect"
)]

mod server;

use std::time::Duration;

use serde_json::json;

use super::{Follower, KubernetesClient, SourceReport, follow};
use crate::config::{KubernetesSource, KubernetesTarget, ServicePort};
use server::{FakeServer, Kind, NAMESPACE, pod, pool, slice};

/// Bound on a wait that only a failed test reaches.
const WAIT_MAX: Duration = Duration::from_secs(60);

fn llm() -> KubernetesTarget {
    KubernetesTarget::InferencePool("llm".into())
}

fn start(server: &FakeServer, target: KubernetesTarget) -> Follower {
    let source = KubernetesSource {
        target,
        namespace: Some(NAMESPACE.into()),
    };
    follow(
        &KubernetesClient::of(server.config()),
        source,
        "replicas",
        Some("llama"),
    )
}

/// Waits until the report satisfies `is_expected`.
async fn wait_for(
    follower: &mut Follower,
    what: &str,
    is_expected: impl Fn(&SourceReport) -> bool,
) {
    let report = tokio::time::timeout(
        WAIT_MAX,
        follower.reports.wait_for(|report| is_expected(report)),
    );
    if report.await.is_err() {
        panic!(
            "waited for {what}; last report: {:?}",
            *follower.reports.borrow()
        );
    }
}

/// Waits until the replicas are `expected`; draining ones have a `-` in front.
async fn wait_for_replicas(follower: &mut Follower, expected: &[&str]) {
    let what = format!("the replicas {expected:?}");
    wait_for(follower, &what, |report| {
        shown(report).is_some_and(|shown| shown == expected)
    })
    .await;
}

fn shown(report: &SourceReport) -> Option<Vec<String>> {
    let replicas = report.replicas.as_ref()?.iter();
    let shown = replicas.map(|(address, replica)| match replica.is_draining {
        true => format!("-{address}"),
        false => address.to_string(),
    });
    Some(shown.collect())
}

/// Waits until there is a problem whose text has `text`.
async fn wait_for_problem(follower: &mut Follower, text: &str) {
    let has_text =
        |report: &SourceReport| report.problem.as_ref().is_some_and(|p| p.contains(text));
    wait_for(follower, text, has_text).await;
}

/// A server with the InferencePool `llm` at port 80 and two ready pods.
async fn two_pods() -> FakeServer {
    let server = FakeServer::start().await;
    server.set(Kind::Pool, pool("app", "a", &[80]));
    server.set(Kind::Pod, pod("x", 1, "a", true));
    server.set(Kind::Pod, pod("y", 2, "a", true));
    server.set(Kind::Pod, pod("other", 3, "b", true));
    server
}

#[tokio::test]
async fn pods_become_ready_unready_terminate_and_leave() {
    let server = two_pods().await;
    let mut follower = start(&server, llm());
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    server.set(Kind::Pod, pod("x", 1, "a", false));
    wait_for_replicas(&mut follower, &["-10.0.0.1:80", "10.0.0.2:80"]).await;
    server.set(Kind::Pod, pod("x", 1, "a", true));
    let mut terminating = pod("y", 2, "a", true);
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    server.set(Kind::Pod, terminating);
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "-10.0.0.2:80"]).await;
    server.remove(Kind::Pod, "y");
    wait_for_replicas(&mut follower, &["10.0.0.1:80"]).await;
}

#[tokio::test]
async fn a_changed_selector_and_changed_ports_are_followed() {
    let server = two_pods().await;
    let mut follower = start(&server, llm());
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    server.set(Kind::Pool, pool("app", "b", &[80]));
    wait_for_replicas(&mut follower, &["10.0.0.3:80"]).await;
    server.set(Kind::Pool, pool("app", "b", &[81, 82]));
    wait_for_replicas(&mut follower, &["10.0.0.3:81", "10.0.0.3:82"]).await;
    server.set(Kind::Pod, pod("z", 4, "b", true));
    server.set(Kind::Pool, pool("app", "b", &[81]));
    wait_for_replicas(&mut follower, &["10.0.0.3:81", "10.0.0.4:81"]).await;
}

#[tokio::test]
async fn an_expired_watch_lists_again_and_misses_nothing() {
    let server = two_pods().await;
    let mut follower = start(&server, llm());
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    server.cut(|state| {
        state.forget_events();
        state.remove(Kind::Pod, "x");
    });
    wait_for_replicas(&mut follower, &["10.0.0.2:80"]).await;
    assert_eq!(follower.reports.borrow().problem, None);
}

#[tokio::test]
async fn the_replicas_survive_a_server_that_goes_away_and_follow_it_when_it_is_back() {
    let server = two_pods().await;
    let mut follower = start(&server, llm());
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    server.cut(|state| {
        state.is_away = true;
        state.remove(Kind::Pod, "x");
    });
    wait_for_problem(&mut follower, "cannot be reached").await;
    assert_eq!(shown(&follower.reports.borrow()).unwrap().len(), 2);
    server.cut(|state| state.is_away = false);
    wait_for_replicas(&mut follower, &["10.0.0.2:80"]).await;
    wait_for(&mut follower, "no problem", |report| {
        report.problem.is_none()
    })
    .await;
}

#[tokio::test]
async fn a_list_that_breaks_off_after_an_empty_first_page_loses_no_replica() {
    let server = two_pods().await;
    let mut follower = start(&server, llm());
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    server.cut(|state| {
        state.forget_events();
        state.remove(Kind::Pod, "y");
        state.has_empty_first_page = true;
        state.breaks_second_page = true;
    });
    wait_for_problem(&mut follower, "status 500").await;
    assert_eq!(shown(&follower.reports.borrow()).unwrap().len(), 2);
    server.cut(|state| state.breaks_second_page = false);
    wait_for_replicas(&mut follower, &["10.0.0.1:80"]).await;
}

#[tokio::test]
async fn a_whole_list_without_pods_loses_no_replica() {
    let server = two_pods().await;
    let mut follower = start(&server, llm());
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    server.cut(|state| {
        state.forget_events();
        state.remove(Kind::Pod, "x");
        state.remove(Kind::Pod, "y");
    });
    wait_for_problem(&mut follower, "no pod in namespace `prod`").await;
    assert_eq!(shown(&follower.reports.borrow()).unwrap().len(), 2);
    server.set(Kind::Pod, pod("z", 4, "a", true));
    wait_for_replicas(&mut follower, &["10.0.0.4:80"]).await;
    wait_for(&mut follower, "no problem", |report| {
        report.problem.is_none()
    })
    .await;
}

#[tokio::test]
async fn watches_that_the_server_ends_at_once_follow_one_another_with_pauses() {
    let server = two_pods().await;
    server.cut(|state| state.ends_watches = true);
    let pods = KubernetesTarget::Pods {
        selector: "app=a".into(),
        ports: vec![80],
    };
    let mut follower = start(&server, pods);
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let watches = server.watches();
    assert!((1..=6).contains(&watches), "{watches} watches");
    server.cut(|state| state.ends_watches = false);
    server.set(Kind::Pod, pod("z", 4, "a", true));
    let expected = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.4:80"];
    wait_for_replicas(&mut follower, &expected).await;
}

#[tokio::test]
async fn a_missing_role_is_a_problem_that_says_what_to_do_until_it_is_bound() {
    let server = two_pods().await;
    server.cut(|state| state.forbidden = Some(Kind::Pod));
    let mut follower = start(&server, llm());
    wait_for_problem(
        &mut follower,
        "may not read pods in namespace `prod`: bind a Role",
    )
    .await;
    assert_eq!(follower.reports.borrow().replicas, None);
    server.cut(|state| state.forbidden = None);
    wait_for_replicas(&mut follower, &["10.0.0.1:80", "10.0.0.2:80"]).await;
    wait_for(&mut follower, "no problem", |report| {
        report.problem.is_none()
    })
    .await;
}

#[tokio::test]
async fn missing_definitions_and_a_missing_pool_are_problems_of_their_own() {
    let server = FakeServer::start().await;
    server.cut(|state| state.has_definitions = false);
    let mut follower = start(&server, llm());
    wait_for_problem(&mut follower, "install the custom resource definitions").await;
    server.cut(|state| state.has_definitions = true);
    wait_for_problem(
        &mut follower,
        "there is no InferencePool `llm` in namespace `prod`",
    )
    .await;
    assert_eq!(follower.reports.borrow().replicas, None);
    server.set(Kind::Pool, pool("app", "a", &[80]));
    wait_for_replicas(&mut follower, &[]).await;
    assert_eq!(follower.reports.borrow().problem, None);
}

#[tokio::test]
async fn a_selector_and_a_service_are_followed_without_an_inference_pool() {
    let server = two_pods().await;
    server.set(Kind::Slice, slice("engines-1", "engines", &[1, 2]));
    server.set(Kind::Slice, slice("others-1", "others", &[9]));
    let pods = KubernetesTarget::Pods {
        selector: "app=b".into(),
        ports: vec![8000],
    };
    wait_for_replicas(&mut start(&server, pods), &["10.0.0.3:8000"]).await;
    let service = KubernetesTarget::Service {
        name: "engines".into(),
        port: None,
    };
    let mut service = start(&server, service);
    wait_for_replicas(&mut service, &["10.0.0.1:8000", "10.0.0.2:8000"]).await;
    server.set(Kind::Slice, slice("engines-2", "engines", &[4]));
    wait_for_replicas(
        &mut service,
        &["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.4:8000"],
    )
    .await;
}

#[tokio::test]
async fn an_unreachable_server_is_a_problem_that_names_its_address() {
    let server = FakeServer::start().await;
    let config = server.config();
    drop(server);
    let source = KubernetesSource {
        target: llm(),
        namespace: None,
    };
    let address = config.cluster_url.to_string();
    let mut follower = follow(
        &KubernetesClient::of(config),
        source,
        "replicas",
        Some("llama"),
    );
    wait_for_problem(&mut follower, &address).await;
    wait_for_problem(&mut follower, "cannot be reached").await;
}

#[tokio::test]
async fn two_thousand_pods_arrive_in_pages_as_one_change() {
    let server = FakeServer::start().await;
    server.set(Kind::Pool, pool("app", "a", &[80]));
    server.cut(|state| {
        for n in 0..2_000_u16 {
            let [high, low] = n.to_be_bytes();
            let mut pod = pod(&format!("p{n}"), 1, "a", true);
            pod["status"]["podIP"] = json!(format!("10.1.{high}.{low}"));
            state.set(Kind::Pod, pod);
        }
    });
    let mut follower = start(&server, llm());
    wait_for(&mut follower, "replicas", |report| {
        report.replicas.is_some()
    })
    .await;
    assert_eq!(shown(&follower.reports.borrow()).unwrap().len(), 2_000);
}

#[tokio::test]
async fn the_pods_of_a_service_have_a_port_that_no_slice_names() {
    let server = FakeServer::start().await;
    server.set(Kind::Slice, slice("isotherm-1", "isotherm", &[1, 2]));
    let service = KubernetesTarget::Service {
        name: "isotherm".into(),
        port: Some(ServicePort::Unlisted(9004)),
    };
    let mut follower = start(&server, service);
    wait_for_replicas(&mut follower, &["10.0.0.1:9004", "10.0.0.2:9004"]).await;
    server.set(Kind::Slice, slice("isotherm-1", "isotherm", &[2, 4]));
    wait_for_replicas(&mut follower, &["10.0.0.2:9004", "10.0.0.4:9004"]).await;
    server.cut(|state| state.is_away = true);
    server.cut(|state| {
        state.is_away = false;
        state.set(Kind::Slice, slice("isotherm-1", "isotherm", &[2]));
    });
    wait_for_replicas(&mut follower, &["10.0.0.2:9004"]).await;
}
