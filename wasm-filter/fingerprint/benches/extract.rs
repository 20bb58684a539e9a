//! How fast the extractor reads chat requests: `cargo bench -p isotherm-fingerprint`.
//!
//! Bodies look like those of clients in Python: prose with a line end every 80 characters or so, a question in another script
//! now and then, `messages` first. Envoy hands bodies over in pieces of 16 KB, so they are fed that way.
#![allow(missing_docs, reason = "criterion's macros make functions without")]

use std::fmt::Write as _;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use isotherm_fingerprint::{Api, Extracted, Extractor, Fingerprint, Wanted};

/// Bytes that Envoy reads at once.
const PIECE_BYTES: usize = 16 * 1024;

fn wanted() -> Wanted {
    Wanted {
        session: [
            "session_id",
            "prompt_cache_key",
            "conversation",
            "user",
            "metadata.session_id",
        ]
        .map(String::from)
        .to_vec(),
        tier: vec!["metadata.tier".into()],
    }
}

fn chat_body(bytes: usize) -> String {
    let mut body =
        String::from(r#"{"messages":[{"role":"system","content":"You are a helpful assistant."}"#);
    let mut turn = 0;
    while body.len() < bytes {
        let role = if turn % 2 == 0 { "user" } else { "assistant" };
        let _ = write!(body, r#",{{"role":"{role}","content":""#);
        for line in 0..bytes.min(4096) / 80 {
            let _ = write!(
                body,
                r"Line {line:>3} of turn {turn:>3}: the quick brown fox jumps over the lazy dog again\n"
            );
        }
        body.push_str(r#"caf\u00e9 \"quoted\""}"#);
        turn += 1;
    }
    body.push_str(r#"],"model":"llama-3.1-8b","stream":true,"user":"u-42"}"#);
    body
}

fn extract(body: &str, wanted: &Wanted) -> Extracted {
    let mut extractor = Extractor::new(Api::ChatCompletions, wanted);
    for piece in body.as_bytes().chunks(PIECE_BYTES) {
        extractor.feed(piece);
    }
    extractor.finish()
}

fn bench_extract(criterion: &mut Criterion) {
    let wanted = wanted();
    let mut group = criterion.benchmark_group("extract");
    for kilobytes in [4, 64, 400] {
        let body = chat_body(kilobytes * 1024);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(
            BenchmarkId::new("chat", format!("{kilobytes}KB")),
            &body,
            |bencher, body| {
                bencher.iter(|| black_box(extract(black_box(body), &wanted)));
            },
        );
    }
    group.finish();
}

fn bench_header(criterion: &mut Criterion) {
    let fingerprint = extract(&chat_body(400 * 1024), &wanted()).fingerprint;
    let header = fingerprint.encode();
    let mut group = criterion.benchmark_group("header");
    group.bench_function("encode/400KB", |bencher| {
        bencher.iter(|| black_box(&fingerprint).encode())
    });
    group.bench_function("decode/400KB", |bencher| {
        bencher.iter(|| Fingerprint::decode(black_box(header.as_bytes())));
    });
    group.finish();
}

criterion_group!(benches, bench_extract, bench_header);
criterion_main!(benches);
