//! Times the extractor, and writing and reading fingerprint headers: `cargo xtask bench core`.
#![allow(missing_docs, reason = "criterion's macros make functions without")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use isotherm_bench_core::body::{chat, extract, wanted};
use isotherm_fingerprint::Fingerprint;

const KILOBYTES: [usize; 4] = [4, 64, 220, 400];

fn reading(criterion: &mut Criterion) {
    let wanted = wanted();
    let mut group = criterion.benchmark_group("extract");
    for kilobytes in KILOBYTES {
        let body = chat(kilobytes << 10);
        group.throughput(Throughput::Bytes(body.len() as u64));
        let id = BenchmarkId::from_parameter(format!("{kilobytes} KB"));
        group.bench_with_input(id, &body, |bencher, body| {
            bencher.iter(|| black_box(extract(black_box(body), &wanted)));
        });
    }
    group.finish();
}

fn headers(criterion: &mut Criterion) {
    for kilobytes in KILOBYTES {
        let fingerprint = extract(&chat(kilobytes << 10), &wanted()).fingerprint;
        let header = fingerprint.encode();
        let id = |what| BenchmarkId::new(what, format!("{kilobytes} KB"));
        let mut group = criterion.benchmark_group("header");
        group.bench_function(id("encode"), |bencher| {
            bencher.iter(|| black_box(&fingerprint).encode());
        });
        group.bench_function(id("decode"), |bencher| {
            bencher.iter(|| Fingerprint::decode(black_box(header.as_bytes())));
        });
        group.finish();
    }
}

criterion_group!(benches, reading, headers);
criterion_main!(benches);
