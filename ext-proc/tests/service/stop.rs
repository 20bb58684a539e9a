//! Ready, stopping, stopped.

use std::time::{Duration, Instant};

use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{ONE_AT_A_TIME, Service, vllm};
use crate::fake::FakeEngine;

#[tokio::test]
async fn a_stop_empties_the_queue_and_waits_for_requests_in_flight() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let mut waiting = service.chat("llama").await;
    waiting.waits().await;
    service.stop();
    let answer = waiting.goes_on().await;
    assert_eq!(answer.destination(), None, "Envoy places it by itself");
    assert_eq!(answer.header("x-isotherm-cluster"), Some("l"));
    drop(waiting);
    assert!(running.is_quiet().await);
    assert!(!service.ended.is_finished(), "one is still in flight");
    running.outcome("v=1;status=200").await;
    drop(running);
    service.ended().await;
}

#[tokio::test]
async fn a_stop_is_bounded() {
    let options = format!("drain_ms_max: 200\n{ONE_AT_A_TIME}");
    let mut service = Service::start(&options, 1).await;
    let mut running = service.chat("llama").await;
    running.goes_on().await;
    let asked = Instant::now();
    service.stop();
    service.ended().await;
    assert!(asked.elapsed() >= Duration::from_millis(200));
    drop(running);
}

#[tokio::test]
async fn a_health_watch_reports_the_stop_and_does_not_delay_it() {
    let mut service = Service::start(ONE_AT_A_TIME, 1).await;
    ready(&service).await;
    let mut followed = Vec::new();
    for name in ["readiness", "liveness"] {
        let request = HealthCheckRequest {
            service: name.to_owned(),
        };
        let answers = HealthClient::new(service.channel.clone())
            .watch(request)
            .await;
        let mut answers = answers.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap().status, 1);
        followed.push(answers);
    }
    service.stop();
    let said = followed[0].message().await.unwrap().unwrap();
    assert_eq!(said.status, 2, "not serving");
    service.ended().await;
}

#[tokio::test]
async fn the_service_is_ready_after_a_probe_of_every_replica() {
    let silent = FakeEngine::start(crate::fake::FakeResponse::Hang).await;
    let options = format!(
        "{ONE_AT_A_TIME}    replicas: {{ static: [\"{}\"] }}\n",
        silent.addr
    );
    let options = options.replace("timeout_ms: 20000", "timeout_ms: 2000");
    let service = Service::start(&options, 0).await;
    assert_eq!(health(&service, "liveness").await, ServingStatus::Serving);
    for name in [
        "readiness",
        "",
        "envoy.service.ext_proc.v3.ExternalProcessor",
    ] {
        assert_eq!(health(&service, name).await, ServingStatus::NotServing);
    }
    silent.set_response(vllm(0));
    ready(&service).await;
    for name in ["", "envoy.service.ext_proc.v3.ExternalProcessor"] {
        assert_eq!(health(&service, name).await, ServingStatus::Serving);
    }
}

#[tokio::test]
async fn a_unix_socket_serves_and_its_file_leaves_with_the_service() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("isotherm.sock");
    let listen = format!("unix:{}", path.display());
    // What a killed process leaves behind is no obstacle.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut service = Service::start_on(&listen, ONE_AT_A_TIME, 1).await;
    let mut call = service.chat("llama").await;
    call.goes_on().await;
    drop(call);
    service.stop();
    service.ended().await;
    assert!(!path.exists());
}

async fn ready(service: &Service) {
    let asked = Instant::now();
    while health(service, "readiness").await != ServingStatus::Serving {
        assert!(
            asked.elapsed() < Duration::from_secs(10),
            "it is never ready"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn health(service: &Service, name: &str) -> ServingStatus {
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    let answer = HealthClient::new(service.channel.clone())
        .check(request)
        .await
        .unwrap();
    match answer.into_inner().status {
        1 => ServingStatus::Serving,
        2 => ServingStatus::NotServing,
        _ => ServingStatus::Unknown,
    }
}
