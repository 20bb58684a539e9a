//! Bounds of owners: whatever one owner takes, something is left for the next.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]

#[path = "support/api.rs"]
mod api;

use std::time::Duration;

use api::TestApi;
use isotherm_batch::limits::Limits;
use serde_json::json;
use tokio::io::AsyncReadExt as _;

fn line(number: usize) -> String {
    let body = json!({ "model": "m", "n": number });
    let line = json!({ "custom_id": format!("c{number}"), "method": "POST", "url": "/v1/completions", "body": body });
    format!("{line}\n")
}

fn input(lines: usize) -> Vec<u8> {
    (0..lines).map(line).collect::<String>().into_bytes()
}

/// Makes batches of a file until the server refuses one. Returns their number and the code of the error.
async fn create_until_refused(api: &TestApi, key: &str, file: &str) -> (usize, String) {
    for created in 0..100 {
        let (status, answer) = api.create(key, file).await;
        if status != 200 {
            let code = answer["error"]["code"].as_str().unwrap().to_owned();
            return (created, code);
        }
    }
    panic!("nothing bounds the batches of {key}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_leaves_batches_for_others() {
    let limits = Limits {
        batches_max: 8,
        ..Limits::default()
    };
    let api = TestApi::start(limits).await;
    let mut counts = Vec::new();
    for key in ["a", "b", "c"] {
        let file = api.upload(key, &input(1)).await;
        let (created, code) = create_until_refused(&api, key, &file).await;
        assert_eq!(code, "too_many_batches");
        counts.push(created);
    }
    assert_eq!(counts, [4, 2, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_leaves_lines_for_others() {
    let limits = Limits {
        open_lines_max: 100,
        ..Limits::default()
    };
    let api = TestApi::start(limits).await;
    let file = api.upload("a", &input(10)).await;
    let (created, code) = create_until_refused(&api, "a", &file).await;
    assert_eq!((created, code.as_str()), (5, "too_many_open_lines"));
    let file = api.upload("b", &input(10)).await;
    assert_eq!(api.create("b", &file).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_batches_count_as_storage() {
    let limits = Limits {
        storage_bytes_max: 2_000_000,
        ..Limits::default()
    };
    let api = TestApi::start(limits).await;
    let file = api.upload("a", &input(1_000)).await;
    let (created, code) = create_until_refused(&api, "a", &file).await;
    assert_eq!(code, "storage_full");
    assert!((1..8).contains(&created), "{created}");
    let (status, answer) = api.upload_with("a", &input(1_000), &[]).await;
    assert!(status == 200 || answer["error"]["code"] == "storage_full");
    // Another owner has room.
    let file = api.upload("b", &input(1_000)).await;
    assert_eq!(api.create("b", &file).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_upload_counts_as_storage() {
    let limits = Limits {
        storage_bytes_max: 20_000_000,
        ..Limits::default()
    };
    let api = TestApi::start(limits).await;
    let long = [vec![b'x'; 2_000_000], vec![b'\n']].concat();
    let (status, answer) = api.upload_with("a", &long.repeat(30), &[]).await;
    assert_eq!(
        (status, answer["error"]["code"].as_str()),
        (507, Some("storage_full"))
    );
    // What had arrived is gone.
    let used = api.store.storage_used("a").await.unwrap();
    assert_eq!(used.bytes.all, 0);
    api.upload("b", &long.repeat(3)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_shared() {
    let limits = Limits {
        files_max: 4,
        ..Limits::default()
    };
    let api = TestApi::start(limits).await;
    for _ in 0..2 {
        api.upload("a", &input(1)).await;
    }
    assert_eq!(api.upload_with("a", &input(1), &[]).await.0, 507);
    api.upload("b", &input(1)).await;
}

fn request(target: &str, key: &str, headers: &str) -> String {
    format!("{target} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n{headers}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_that_trickle_leave_places_for_others() {
    let api = TestApi::start(Limits::default()).await;
    let headers = "content-type: multipart/form-data; boundary=edge\r\ncontent-length: 1000000\r\n";
    let part = "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx";
    let mut trickling = Vec::new();
    for _ in 0..8 {
        let text = request("POST /v1/files", "a", headers) + part;
        trickling.push(api.begin(&text).await);
    }
    // Some are refused at once: then the others have their places.
    let refusals = trickling.iter_mut().map(|connection| async {
        let mut text = [0; 12];
        let read = connection.read_exact(&mut text);
        let read = tokio::time::timeout(Duration::from_secs(2), read).await;
        read.is_ok_and(|read| read.is_ok()) && text == *b"HTTP/1.1 429"
    });
    let refused = futures_util::future::join_all(refusals).await;
    assert_eq!(refused.iter().filter(|refused| **refused).count(), 4);
    api.upload("b", &input(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_that_read_nothing_leave_places_for_others() {
    let api = TestApi::start(Limits::default()).await;
    let long = [vec![b'x'; 2_000_000], vec![b'\n']].concat();
    let file = api.upload("a", &long.repeat(5)).await;
    let target = format!("GET /v1/files/{file}/content");
    let mut downloads = Vec::new();
    for _ in 0..200 {
        downloads.push(api.begin(&request(&target, "a", "")).await);
    }
    let (status, answer) = api.get(&format!("/v1/files/{file}/content"), "a").await;
    assert_eq!(
        (status, answer["error"]["code"].as_str()),
        (429, Some("too_many_downloads"))
    );
    let file = api.upload("b", &input(3)).await;
    let (status, _) = api.get(&format!("/v1/files/{file}/content"), "b").await;
    assert_eq!(status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_without_a_key_take_nothing_from_others() {
    let api = TestApi::start(Limits::default()).await;
    let mut idle = Vec::new();
    for begun in ["", "GET /v1/files HTTP/1.1\r\n"].iter().cycle().take(600) {
        idle.push(api.begin(begun).await);
    }
    let file = api.upload("a", &input(1)).await;
    assert_eq!(api.create("a", &file).await.0, 200);
    for page in ["/healthz", "/readyz"] {
        assert_eq!(api.get(page, "none").await.0, 200, "{page}");
    }
    assert_eq!(api.get("/v1/files", "none").await.0, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_never_end_leave_places_for_others_and_for_health() {
    let api = TestApi::start(Limits::default()).await;
    let headers = "content-type: application/json\r\ncontent-length: 100\r\n";
    let mut open = Vec::new();
    for key in ["a", "b"].iter().cycle().take(600) {
        open.push(api.begin(&request("POST /v1/batches", key, headers)).await);
    }
    assert_eq!(api.get("/healthz", "none").await.0, 200);
    assert_eq!(api.get("/v1/batches", "c").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn health_tells_that_the_file_of_the_database_is_gone() {
    let api = TestApi::start(Limits::default()).await;
    assert_eq!(api.get("/healthz", "none").await.0, 200);
    for name in ["queue.db", "queue.db-wal", "queue.db-shm"] {
        let _ = std::fs::remove_file(api.folder.path().join(name));
    }
    for page in ["/healthz", "/readyz"] {
        let mut answer = api.get(page, "none").await;
        for _ in 0..300 {
            if answer.0 == 503 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            answer = api.get(page, "none").await;
        }
        assert_eq!(answer.0, 503, "{page}");
        assert!(answer.1.as_str().unwrap().contains("deleted"), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_needs_the_keys() {
    let api = TestApi::start(Limits::default()).await;
    std::fs::remove_file(api.folder.path().join("keys")).unwrap();
    assert_eq!(api.get("/readyz", "none").await.0, 503);
    assert_eq!(api.get("/healthz", "none").await.0, 200);
}
