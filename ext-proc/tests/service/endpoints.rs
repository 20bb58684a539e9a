//! Replicas that come and go, as Envoy hears of them.

use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient;
use envoy_types::pb::google::rpc::Status;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{ONE_AT_A_TIME, PATIENCE, Service};

const HEALTHY: i32 = 1;
const DRAINING: i32 = 3;

#[tokio::test]
async fn state_of_the_world_follows_the_replicas() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let first = service.engines[0].addr.port();
    let (envoy, mut answers) = sotw(&service).await;
    envoy.send(want(&["l"], "")).await.unwrap();
    let answer = next(&mut answers).await;
    assert_eq!(ports(&answer), [("l".to_owned(), vec![(first, HEALTHY)])]);
    envoy.send(want(&["l"], &answer.nonce)).await.unwrap();

    let second = service.add_engine().await;
    let answer = next(&mut answers).await;
    let mut both = vec![(first, HEALTHY), (second.port(), HEALTHY)];
    both.sort_unstable();
    assert_eq!(sorted(&answer), both);
    envoy.send(want(&["l"], &answer.nonce)).await.unwrap();

    service.pool().drain_replica(second).unwrap();
    let answer = next(&mut answers).await;
    assert!(
        sorted(&answer).contains(&(second.port(), DRAINING)),
        "it stays listed"
    );
    envoy.send(want(&["l"], &answer.nonce)).await.unwrap();

    service.pool().remove_replica(second).unwrap();
    let answer = next(&mut answers).await;
    assert_eq!(sorted(&answer), [(first, HEALTHY)]);
}

#[tokio::test]
async fn a_cluster_without_a_pool_gets_a_response_without_endpoints() {
    let service = Service::start(ONE_AT_A_TIME, 1).await;
    let (envoy, mut answers) = sotw(&service).await;
    envoy.send(want(&["l"], "")).await.unwrap();
    let answer = next(&mut answers).await;
    envoy
        .send(want(&["l", "typo"], &answer.nonce))
        .await
        .unwrap();
    let answer = next(&mut answers).await;
    assert_eq!(
        ports(&answer),
        [("typo".to_owned(), vec![])],
        "and what it has is not sent again"
    );
}

#[tokio::test]
async fn an_envoy_keeps_its_endpoints_until_the_pool_has_synced() {
    let unknown = "pools: [{ model: llama, cluster: l, replicas: { dns: nowhere.invalid:8000 } }]";
    let service = Service::start(unknown, 0).await;
    let (envoy, mut answers) = sotw(&service).await;
    envoy.send(want(&["l", "typo"], "")).await.unwrap();
    let answer = next(&mut answers).await;
    assert_eq!(ports(&answer), [("typo".to_owned(), vec![])]);
    let mut call = service.chat("llama").await;
    let answer = call.goes_on().await;
    assert_eq!(answer.header("x-isotherm-cluster"), Some("l"));
    assert_eq!(answer.destination(), None, "Envoy may know of one");
    // The name service may take its time.
    let wait = async {
        loop {
            let (status, page) = service.ask("/readyz").await;
            assert_eq!(status, 503);
            if page.contains("cannot be resolved") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test]
async fn the_first_update_of_a_pool_lists_its_replicas() {
    for replicas in ["static: [\"127.0.0.1:1001\"]", "dns: localhost:1001"] {
        let options =
            format!("pools: [{{ model: llama, cluster: l, replicas: {{ {replicas} }} }}]");
        let service = Service::start(&options, 0).await;
        let (envoy, mut answers) = sotw(&service).await;
        envoy.send(want(&["l"], "")).await.unwrap();
        let answer = next(&mut answers).await;
        assert!(sorted(&answer).contains(&(1001, HEALTHY)), "{answer:?}");
    }
}

#[tokio::test]
async fn a_refused_update_is_counted_and_not_sent_again() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let (envoy, mut answers) = sotw(&service).await;
    envoy.send(want(&["l"], "")).await.unwrap();
    let answer = next(&mut answers).await;
    let refusal = DiscoveryRequest {
        error_detail: Some(Status {
            message: "no".into(),
            ..Status::default()
        }),
        ..want(&["l"], &answer.nonce)
    };
    envoy.send(refusal).await.unwrap();
    let page = service.page_with("isotherm_eds_nacks_total 1").await;
    assert!(page.contains("isotherm_eds_pushes_total 1"), "{page}");
    service.add_engine().await;
    assert_eq!(sorted(&next(&mut answers).await).len(), 2);
}

#[tokio::test]
async fn incremental_updates_contain_only_changes() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let (envoy, mut answers) = delta(&service).await;
    envoy.send(subscribe(&["l", "typo"])).await.unwrap();
    let answer = next(&mut answers).await;
    assert_eq!(names(&answer), ["l", "typo"]);
    let had: Vec<_> = answer
        .resources
        .iter()
        .map(|resource| (resource.name.clone(), resource.version.clone()))
        .collect();
    drop((envoy, answers));

    let (envoy, mut answers) = delta(&service).await;
    let comes_back = DeltaDiscoveryRequest {
        initial_resource_versions: had.into_iter().collect(),
        ..subscribe(&["l", "typo"])
    };
    envoy.send(comes_back).await.unwrap();
    service.add_engine().await;
    let answer = next(&mut answers).await;
    assert_eq!(names(&answer), ["l"]);

    let unsubscribe = DeltaDiscoveryRequest {
        resource_names_unsubscribe: vec!["l".into()],
        response_nonce: answer.nonce,
        ..DeltaDiscoveryRequest::default()
    };
    envoy.send(unsubscribe).await.unwrap();
    envoy.send(subscribe(&["typo"])).await.unwrap();
    assert_eq!(
        names(&next(&mut answers).await),
        ["typo"],
        "asked for again"
    );
    service.add_engine().await;
    envoy.send(subscribe(&["l"])).await.unwrap();
    let answer = next(&mut answers).await;
    assert_eq!(names(&answer), ["l"], "nothing in between");
}

#[tokio::test]
async fn an_envoy_that_disconnects_is_not_counted() {
    let service = Service::start(ONE_AT_A_TIME, 0).await;
    let (envoy, mut answers) = sotw(&service).await;
    envoy.send(want(&["l"], "")).await.unwrap();
    next(&mut answers).await;
    service.page_with("isotherm_eds_streams 1").await;
    drop((envoy, answers));
    service.page_with("isotherm_eds_streams 0").await;
}

type Envoy<Q, R> = (mpsc::Sender<Q>, Streaming<R>);

async fn sotw(service: &Service) -> Envoy<DiscoveryRequest, DiscoveryResponse> {
    let (sender, messages) = mpsc::channel(16);
    let answers = EndpointDiscoveryServiceClient::new(service.channel.clone())
        .stream_endpoints(ReceiverStream::new(messages))
        .await
        .unwrap();
    (sender, answers.into_inner())
}

async fn delta(service: &Service) -> Envoy<DeltaDiscoveryRequest, DeltaDiscoveryResponse> {
    let (sender, messages) = mpsc::channel(16);
    let answers = EndpointDiscoveryServiceClient::new(service.channel.clone())
        .delta_endpoints(ReceiverStream::new(messages))
        .await
        .unwrap();
    (sender, answers.into_inner())
}

fn want(clusters: &[&str], nonce: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        resource_names: clusters.iter().map(|name| (*name).into()).collect(),
        response_nonce: nonce.into(),
        ..DiscoveryRequest::default()
    }
}

fn subscribe(clusters: &[&str]) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        resource_names_subscribe: clusters.iter().map(|name| (*name).into()).collect(),
        ..DeltaDiscoveryRequest::default()
    }
}

async fn next<R>(answers: &mut Streaming<R>) -> R {
    tokio::time::timeout(PATIENCE, answers.message())
        .await
        .expect("an update in time")
        .unwrap()
        .unwrap()
}

/// Each cluster's ports and their health.
fn ports(answer: &DiscoveryResponse) -> Vec<(String, Vec<(u16, i32)>)> {
    let assignments = answer
        .resources
        .iter()
        .map(|any| ClusterLoadAssignment::decode(any.value.as_slice()).unwrap());
    assignments
        .map(|assignment| {
            let endpoints = assignment
                .endpoints
                .into_iter()
                .flat_map(|l| l.lb_endpoints);
            let ports = endpoints.map(|endpoint| {
                let Some(HostIdentifier::Endpoint(host)) = endpoint.host_identifier else {
                    panic!("no address");
                };
                let Some(Address::SocketAddress(address)) = host.address.unwrap().address else {
                    panic!("no socket address");
                };
                let Some(PortSpecifier::PortValue(port)) = address.port_specifier else {
                    panic!("no port");
                };
                (u16::try_from(port).unwrap(), endpoint.health_status)
            });
            (assignment.cluster_name, ports.collect())
        })
        .collect()
}

fn sorted(answer: &DiscoveryResponse) -> Vec<(u16, i32)> {
    let mut all: Vec<_> = ports(answer).into_iter().flat_map(|(_, p)| p).collect();
    all.sort_unstable();
    all
}

fn names(answer: &DeltaDiscoveryResponse) -> Vec<&str> {
    answer.resources.iter().map(|r| r.name.as_str()).collect()
}
