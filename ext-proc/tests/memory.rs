//! Memory of ten thousand queued requests: the real program, real streams, fingerprints of long prompts.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test relies on and does not get is its failure"
)]

pub mod fake;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HttpHeaders, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use fake::{FakeEngine, vllm};
use isotherm_fingerprint::{BlockHash, Fingerprint};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

const WAITING: u64 = 10_000;

/// Limit of resident memory with all requests queued, in KiB.
const RESIDENT_KIB_MAX: u64 = 300 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_queued_requests_fit_into_300_mb() {
    // A replica with a request in its own queue takes no other.
    let engine = FakeEngine::start(vllm(1)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("isotherm.yaml");
    let config = format!(
        "listen: [\"127.0.0.1:0\"]\n\
         admin: {{ listen: \"127.0.0.1:0\" }}\n\
         pools: [{{ model: m, replicas: {{ static: [\"{}\"] }}, queue: {{ wait_ms_max: 100000 }} }}]\n",
        engine.addr
    );
    std::fs::write(&file, config).unwrap();
    let service = Service::start(&file);
    let channel = Endpoint::from_shared(format!("http://{}", service.listen)).unwrap();
    let channel = channel.connect().await.unwrap();

    let mut held = Vec::new();
    for number in 0..WAITING {
        let mut stream = open(&channel, number).await;
        let message = stream.1.message().await.unwrap().unwrap();
        assert!(message.override_message_timeout.is_some(), "{message:?}");
        held.push(stream);
    }
    let resident = service.resident_kib();
    println!("{WAITING} waiting requests: {resident} KiB resident");
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB");
}

type Stream = (
    mpsc::Sender<ProcessingRequest>,
    Streaming<ProcessingResponse>,
);

async fn open(channel: &Channel, number: u64) -> Stream {
    let headers = [
        (":method", "POST".to_owned()),
        (":path", "/v1/chat/completions".to_owned()),
        ("x-isotherm-model", "m".to_owned()),
        ("x-isotherm-session", format!("session-{number}")),
        ("x-isotherm-tokens", "11000;500".to_owned()),
        ("x-isotherm-fingerprint", long_prompt(number).encode()),
    ];
    let headers = headers.map(|(key, value)| HeaderValue {
        key: key.into(),
        raw_value: value.into_bytes(),
        ..HeaderValue::default()
    });
    let headers = HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.into(),
        }),
        ..HttpHeaders::default()
    };
    let (sender, messages) = mpsc::channel(1);
    let request = ProcessingRequest {
        request: Some(Request::RequestHeaders(headers)),
        protocol_config: Some(ProtocolConfiguration::default()),
        ..ProcessingRequest::default()
    };
    sender.send(request).await.unwrap();
    let answers = ExternalProcessorClient::new(channel.clone())
        .process(ReceiverStream::new(messages))
        .await
        .unwrap();
    (sender, answers.into_inner())
}

/// As many blocks as a prompt of about a megabyte has, all of them this prompt's own.
fn long_prompt(number: u64) -> Fingerprint {
    let blocks = (1..=180).map(|block: u32| BlockHash {
        hash: (number << 32 | u64::from(block)).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        end_bytes: block * 256,
    });
    Fingerprint::new(blocks.collect(), 180 * 256).unwrap()
}

/// The program; it is killed when this is dropped.
struct Service {
    process: Child,
    listen: String,
}

impl Service {
    /// Starts it, and waits until it is ready.
    fn start(file: &std::path::Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_isotherm"))
            .arg("serve")
            .arg("--config")
            .arg(file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (mut listen, mut ready) = (None, false);
        for line in lines.by_ref() {
            let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            match event["message"].as_str() {
                Some("serving") => listen = event["listen"].as_str().map(str::to_owned),
                Some("ready") => ready = true,
                _ => {}
            }
            if ready && listen.is_some() {
                break;
            }
        }
        // A pipe that is read to its end blocks no writer.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            listen: listen.expect("it says where it listens"),
        }
    }

    fn resident_kib(&self) -> u64 {
        let status = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1));
        kib.expect("a resident size").parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
