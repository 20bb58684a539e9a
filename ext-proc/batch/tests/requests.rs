//! Requests to the batch API as real clients send them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]

#[path = "support/api.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod api;

use api::TestApi;
use isotherm_batch::limits::Limits;
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn the_expiry_of_a_file_is_read_in_both_forms() {
    let api = TestApi::start(Limits::default()).await;
    let json = [("expires_after", r#"{"anchor":"created_at","seconds":3600}"#)];
    let fields = [
        ("expires_after[anchor]", "created_at"),
        ("expires_after[seconds]", "3600"),
    ];
    for form in [json.as_slice(), &fields] {
        let (status, file) = api.upload_with("a", b"{}\n", form).await;
        assert_eq!(status, 200, "{file}");
        let expires_at = file["expires_at"].as_i64().unwrap();
        assert_eq!(expires_at - file["created_at"].as_i64().unwrap(), 3_600);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_that_is_not_understood_is_an_error() {
    let api = TestApi::start(Limits::default()).await;
    for (name, value) in [
        ("expires_after", "3600"),
        ("expires_after", r#"{"anchor":"now","seconds":3600}"#),
        (
            "expires_after",
            r#"{"anchor":"created_at","seconds":"3600"}"#,
        ),
        ("expires_after", r#"{"seconds":3600}"#),
        ("expires_after[anchor]", "created_at"),
        ("expires_after[seconds]", "3600"),
        ("expires_after.seconds", "3600"),
        ("expiresAfter", "{}"),
        ("ttl", "1"),
    ] {
        let (status, error) = api.upload_with("a", b"{}\n", &[(name, value)]).await;
        assert_eq!(status, 400, "{name}: {error}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("expires_after"), "{message}");
    }
    assert_eq!(api.store.storage_used("a").await.unwrap().files.all, 0);
}

fn ids(list: &Value) -> Vec<String> {
    let data = list["data"].as_array().unwrap();
    data.iter()
        .map(|file| file["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_listed_in_both_orders_page_by_page() {
    let api = TestApi::start(Limits::default()).await;
    for _ in 0..5 {
        api.upload("a", b"{}\n").await;
    }
    let (_, newest) = api.get("/v1/files?order=desc", "a").await;
    assert_eq!(ids(&newest), ids(&api.get("/v1/files", "a").await.1));
    let mut oldest = Vec::new();
    let mut path = "/v1/files?order=asc&limit=2".to_owned();
    loop {
        let (status, page) = api.get(&path, "a").await;
        assert_eq!(status, 200, "{page}");
        oldest.extend(ids(&page));
        if page["has_more"] == false {
            break;
        }
        path = format!(
            "/v1/files?order=asc&limit=2&after={}",
            oldest.last().unwrap()
        );
    }
    let reversed: Vec<String> = ids(&newest).into_iter().rev().collect();
    assert_eq!(oldest, reversed);
    assert_eq!(api.get("/v1/files?order=up", "a").await.0, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_is_in_no_name() {
    let api = TestApi::start(Limits::default()).await;
    for (path, expected) in [
        ("/v1/files/file-%00x", 404),
        ("/v1/files/%00", 404),
        ("/v1/files/file-%00/content", 404),
        ("/v1/batches/batch_%00", 404),
        ("/v1/files?after=%00", 400),
        ("/v1/files?after=file-%00x", 400),
        ("/v1/files?purpose=%00", 400),
        ("/v1/batches?after=%00", 400),
    ] {
        let (status, answer) = api.get(path, "a").await;
        assert_eq!(status, expected, "{path}: {answer}");
    }
    assert_eq!(api.create("a", "file-\0x").await.0, 404);
}
