//! The webhook, holds and drains.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::fake::FakeEngine;
use crate::scaled::{ScaledService, page, text, wait_for_number};

type Calls = Arc<Mutex<Vec<(Value, String)>>>;

/// A receiver that rejects its first call.
async fn receive(State(calls): State<Calls>, headers: HeaderMap, body: String) -> StatusCode {
    let token = headers["authorization"].to_str().unwrap().to_owned();
    let mut calls = calls.lock().unwrap();
    calls.push((serde_json::from_str(&body).unwrap(), token));
    if calls.len() == 1 {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_gets_each_change_again_until_it_takes_it() {
    let calls = Calls::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .route("/scale", post(receive))
        .with_state(Arc::clone(&calls));
    tokio::spawn(async { axum::serve(listener, app).await.unwrap() });
    let engines = [
        FakeEngine::start(page(0.5)).await,
        FakeEngine::start(page(0.5)).await,
    ];
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("hook.token"), "hook-token\n").unwrap();
    let scaling = format!(
        "      mode: act\n      webhook: \"http://{address}/scale\"\n      webhook_token_file: hook.token\n"
    );
    let free = "127.0.0.1:0".parse().unwrap();
    let service = ScaledService::start(folder.path(), &text(&engines, free, &[], &scaling)).await;
    wait_for_number(&[&service], 2).await;

    let (status, body) = service
        .request(
            "POST",
            "/api/scaling/hold",
            r#"{"replicas": 4, "seconds": 600}"#,
        )
        .await;
    assert_eq!(status, 204, "{body}");
    wait_for_number(&[&service], 4).await;
    let wanted = || {
        let calls = calls.lock().unwrap();
        calls
            .iter()
            .any(|(call, _)| call["desired"] == 4 && call["reason"] == "hold")
    };
    for _ in 0..200 {
        if wanted() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seen = calls.lock().unwrap().clone();
    assert!(wanted(), "{seen:?}");
    assert!(
        seen.iter().all(|(_, token)| token == "Bearer hook-token"),
        "{seen:?}"
    );
    assert!(
        seen.len() >= 2,
        "the rejected call came again, or a newer one: {seen:?}"
    );
    let (status, body) = service
        .request("POST", "/api/scaling/hold", r#"{"replicas": 4}"#)
        .await;
    assert_eq!(status, 400, "{body}");
    let (status, body) = service.request("POST", "/api/scaling/hold", "{}").await;
    assert_eq!(status, 204, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_returns_when_the_replica_is_empty_and_an_undrain_takes_it_back() {
    let engines = [
        FakeEngine::start(page(0.5)).await,
        FakeEngine::start(page(0.5)).await,
    ];
    let folder = tempfile::tempdir().unwrap();
    let free = "127.0.0.1:0".parse().unwrap();
    let service = ScaledService::start(folder.path(), &text(&engines, free, &[], "")).await;
    let path = |what: &str| format!("/api/replicas/{}/{what}", engines[0].addr);
    let (status, body) = service
        .request("POST", &path("drain?wait_ms=5000"), "")
        .await;
    assert_eq!(status, 204, "{body}");
    assert_eq!(service.draining().await, 1);
    let (status, body) = service.request("POST", &path("undrain"), "").await;
    assert_eq!((status, service.draining().await), (204, 0), "{body}");
    let (status, body) = service
        .request("POST", &path("drain?wait_ms=99000000"), "")
        .await;
    assert_eq!(status, 400, "{body}");
}
