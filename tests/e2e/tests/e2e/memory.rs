//! The memory that queued requests take.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HttpHeaders, ProcessingRequest, ProtocolConfiguration,
};
use isotherm_e2e::{MODEL, ScriptedReplica, admin, permit, scripted};
use isotherm_fingerprint::{Api, BlockHash, Extractor, Fingerprint, MemberPaths, names};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

const QUEUED: usize = 10_000;
const RESIDENT_BYTES_MAX: u64 = 300_000_000;
const CONNECTIONS: usize = 4;

/// The test connects to the service as Envoy does: ten thousand clients of Envoy would measure Envoy and themselves.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_queued_requests_fit_into_300_mb() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = scripted("memory", &[&replica], 1)
        .service(|config| {
            let queue = json!({ "length_max": 2 * QUEUED, "wait_ms_max": 600_000 });
            config.set("pools/0/queue", queue)
        })
        .start()
        .await?;

    let long = long_fingerprint()?;
    let channels = channels(stack.service().address()).await?;
    let mut streams = JoinSet::new();
    // The first request occupies the replica.
    for (number, channel) in (0..=QUEUED).zip(channels.iter().cycle()) {
        let (channel, request) = (channel.clone(), headers(&long, number)?);
        streams.spawn(keep_open(channel, request));
    }
    tokio::select! {
        full = admin::wait_for_pool(stack.service(), "queue_length", QUEUED as u64) => full?,
        Some(ended) = streams.join_next() => ended??,
    }

    let resident = stack.service().process()?.resident_bytes()?;
    println!(
        "{QUEUED} queued requests: {} MB resident",
        resident / 1_000_000
    );
    assert!(
        resident < RESIDENT_BYTES_MAX,
        "{resident} bytes are resident"
    );

    // Clients that disconnect leave the queue.
    streams.shutdown().await;
    drop(channels);
    admin::wait_for_pool(stack.service(), "queue_length", 0).await?;
    admin::wait_until_idle(stack.service()).await
}

async fn channels(service: SocketAddr) -> anyhow::Result<Vec<Channel>> {
    let endpoint = Endpoint::try_from(format!("http://{service}"))?;
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(endpoint.connect().await?);
    }
    Ok(channels)
}

/// Sends the headers and keeps the stream open, as Envoy does; ends only when the service ends it.
async fn keep_open(channel: Channel, request: ProcessingRequest) -> anyhow::Result<()> {
    // The sender lives as long as this task, and keeps the request open.
    let (sender, inbound) = mpsc::channel(1);
    sender.send(request).await?;
    let responses = ExternalProcessorClient::new(channel)
        .process(ReceiverStream::new(inbound))
        .await?;
    let mut responses = responses.into_inner();
    while responses.message().await?.is_some() {}
    bail!("the service ended a stream")
}

/// The headers that Envoy sends for a long prompt; each request has a prompt of its own.
fn headers(long: &Fingerprint, number: usize) -> anyhow::Result<ProcessingRequest> {
    let own = |block: &BlockHash| BlockHash {
        hash: block.hash ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        ..*block
    };
    let blocks = long.blocks().iter().map(own).collect();
    let own = Fingerprint::new(blocks, long.total_bytes()).context("not a fingerprint")?;
    let session = format!("session-{number}");
    let id = format!("00000000-0000-4000-8000-{number:012}");
    let all = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "llm.example"),
        (":scheme", "https"),
        ("x-request-id", &id),
        (names::MODEL, MODEL),
        (names::CLUSTER, isotherm_e2e::CLUSTER),
        (names::SESSION, &session),
        (names::TIER, "interactive-normal"),
        (names::TOKENS, "250000;1000"),
        (names::FINGERPRINT, &own.encode()),
    ];
    let headers = all.map(|(key, value)| HeaderValue {
        key: key.into(),
        raw_value: value.as_bytes().into(),
        ..HeaderValue::default()
    });
    Ok(ProcessingRequest {
        protocol_config: Some(ProtocolConfiguration::default()),
        request: Some(Request::RequestHeaders(HttpHeaders {
            headers: Some(HeaderMap {
                headers: headers.into(),
            }),
            ..HttpHeaders::default()
        })),
        ..ProcessingRequest::default()
    })
}

/// A fingerprint of about 2 KB, the largest size.
fn long_fingerprint() -> anyhow::Result<Fingerprint> {
    let body = json!({ "model": MODEL, "prompt": "warm ".repeat(200_000) }).to_string();
    let mut extractor = Extractor::new(Api::Completions, &MemberPaths::default());
    extractor.feed(body.as_bytes());
    let fingerprint = extractor.finish().fingerprint;
    let bytes = fingerprint.encode().len();
    anyhow::ensure!(
        (1_500..=2_100).contains(&bytes),
        "a header of {bytes} bytes"
    );
    Ok(fingerprint)
}
