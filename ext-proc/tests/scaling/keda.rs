//! KEDA's contract: pull and push, two siblings that answer alike, errors that keep the replicas that there are.

use std::time::Duration;

use isotherm_ext_proc::scaling::keda::ScaledObjectRef;
use tonic::Code;

use crate::fake::FakeEngine;
use crate::scaled::{MODEL, ScaledService, object, page, text, wait_for_number};

const ACT: &str = "      mode: act\n";

async fn engines<const N: usize>() -> [FakeEngine; N] {
    let mut engines = Vec::new();
    for _ in 0..N {
        engines.push(FakeEngine::start(page(0.5)).await);
    }
    engines.try_into().unwrap()
}

fn set_usage(engines: &[FakeEngine], usage: f64) {
    for engine in engines {
        engine.set_response(page(usage));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn siblings_answer_alike_while_demand_rises_and_falls_and_a_service_restarts() {
    let engines: [FakeEngine; 2] = engines().await;
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let free = "127.0.0.1:0".parse().unwrap();
    let [first, second] = &folders;
    let first = ScaledService::start(first.path(), &text(&engines, free, &[], ACT)).await;
    let second = ScaledService::start(second.path(), &text(&engines, free, &[], ACT)).await;
    // Both follow their files, which now name the other one.
    let files = folders
        .each_ref()
        .map(|folder| folder.path().join("isotherm.yaml"));
    std::fs::write(&files[0], text(&engines, first.links, &[second.links], ACT)).unwrap();
    std::fs::write(&files[1], text(&engines, second.links, &[first.links], ACT)).unwrap();
    wait_for_number(&[&first, &second], 2).await;

    let mut pushed = second
        .client()
        .await
        .stream_is_active(object())
        .await
        .unwrap()
        .into_inner();
    assert!(
        pushed.message().await.unwrap().unwrap().result,
        "the state is pushed at once"
    );
    let spec = first
        .client()
        .await
        .get_metric_spec(object())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(spec.metric_specs.len(), 1);
    assert!((spec.metric_specs[0].target_size_float - 1.0).abs() < 1e-9);

    // 0.95 of two caches is 0.63 of three.
    set_usage(&engines, 0.95);
    wait_for_number(&[&first, &second], 3).await;
    assert!(
        first
            .client()
            .await
            .is_active(object())
            .await
            .unwrap()
            .into_inner()
            .result
    );

    set_usage(&engines, 0.02);
    wait_for_number(&[&first, &second], 1).await;
    for service in [&first, &second] {
        assert_eq!(service.draining().await, 1);
    }

    // The leader ends. The other one goes on from its number, and leads; the first one returns and follows.
    let links = first.links;
    first.stop().await;
    wait_for_number(&[&second], 1).await;
    set_usage(&engines, 0.95);
    wait_for_number(&[&second], 2).await;
    let restarted = text(&engines, links, &[second.links], ACT);
    let first = ScaledService::start(folders[0].path(), &restarted).await;
    wait_for_number(&[&first, &second], 2).await;
    let mut leaders = 0;
    for _ in 0..50 {
        leaders = u32::from(first.leads().await) + u32::from(second.leads().await);
        if leaders == 1 && second.leads().await {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(
        leaders == 1 && second.leads().await,
        "the service that started first leads"
    );
    assert_eq!(first.pool().await["epoch"], second.pool().await["epoch"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_that_only_advise_and_unknown_pools_are_errors() {
    let engines: [FakeEngine; 1] = engines().await;
    let folder = tempfile::tempdir().unwrap();
    let free = "127.0.0.1:0".parse().unwrap();
    let service = ScaledService::start(folder.path(), &text(&engines, free, &[], "")).await;
    let mut client = service.client().await;
    let mut code = Code::Unavailable;
    for _ in 0..100 {
        code = client.is_active(object()).await.unwrap_err().code();
        if code != Code::Unavailable {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(code, Code::FailedPrecondition, "mode `advise`");
    let pool = service.pool().await;
    assert_eq!(
        (&pool["pool"], &pool["mode"]),
        (&MODEL.into(), &"advise".into()),
        "{pool}"
    );
    let mut unknown = object();
    unknown
        .scaler_metadata
        .insert("pool".to_owned(), "other".to_owned());
    let error = client.is_active(unknown).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("`m`"), "{error}");
    // With one pool the trigger need not name it.
    let error = client
        .is_active(ScaledObjectRef::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
}
