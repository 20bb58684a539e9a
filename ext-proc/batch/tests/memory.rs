//! The memory of the batch API, alone in its process: other tests would count, too.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed assertion fails the test"
)]
#![cfg(target_os = "linux")]

#[path = "support/api.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod api;

use std::time::Duration;

use api::TestApi;
use isotherm_batch::limits::Limits;

/// Resident memory of this process, in MiB.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib: u64 = line
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    kib / 1_024
}

#[tokio::test(flavor = "multi_thread")]
async fn downloads_that_read_nothing_hold_little_memory() {
    const DOWNLOADS: usize = 40;
    const RESIDENT_MIB_MAX: u64 = 200;
    let api = TestApi::start(Limits::default()).await;
    let mut content = Vec::new();
    for _ in 0..10 {
        content.extend(vec![b'x'; 2_900_000]);
        content.push(b'\n');
    }
    let file = api.upload("a", &content).await;
    let mut downloads = Vec::new();
    for _ in 0..DOWNLOADS {
        let request = format!(
            "GET /v1/files/{file}/content HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer a\r\n\r\n"
        );
        downloads.push(api.begin(&request).await);
    }
    let mut most = 0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(resident_mib());
    }
    println!("{most} MiB");
    assert!(most < RESIDENT_MIB_MAX, "{most} MiB");
    drop(downloads);
    // A slow reader gets every byte all the same.
    let (status, text) = api.get(&format!("/v1/files/{file}/content"), "a").await;
    assert_eq!(status, 200);
    assert!(text.as_str().unwrap().as_bytes() == content, "other bytes");
}
