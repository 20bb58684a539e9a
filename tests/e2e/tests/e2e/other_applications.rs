//! Applications beside engines on one listener: their uploads, streams and upgrades are byte for byte those of the same Envoy
//! without Isotherm, also while no engine lives.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::StreamExt as _;
use isotherm_e2e::fixture::scripted_as_shipped;
use isotherm_e2e::{Client, ScriptedReplica, admin, chat, permit, with_long_timeouts};
use isotherm_harness::{Stack, port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use crate::envoy_command::add;

const UPLOAD_BYTES: usize = 50 << 20;
const MESSAGES: u64 = 50;

/// A listener of the owner, `NAME` at `ADDRESS`. `ROUTES` come first.
const LISTENER: &str = r#"
    - name: NAME
      address: ADDRESS
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: owner
                generate_request_id: false
                upgrade_configs: [{ upgrade_type: websocket }]
                route_config:
                  virtual_hosts:
                    - name: NAME_other
                      domains: ["other.example"]
                      routes: [{ match: { prefix: / }, route: { cluster: app } }]
                    - name: NAME_all
                      domains: ["*"]
                      routes:ROUTES
                        - match: { prefix: /envoy.service }
                          route: { cluster: grpc, timeout: 0s }
                        - match: { prefix: / }
                          route: { cluster: app, timeout: 0s }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                      suppress_envoy_headers: true
"#;
const ENGINES: &str = "\n                        - match: { prefix: /v1/ }\n                          route: { cluster: engines, timeout: 300s }";
const CLUSTERS: &str = r#"
  clusters:
    - name: engines
      type: STATIC
      load_assignment: { cluster_name: engines, endpoints: [] }
    - name: app
      type: STATIC
      load_assignment: { cluster_name: app, endpoints: [{ lb_endpoints: [{ endpoint: { address: APP } }] }] }
    - name: grpc
      type: STATIC
      load_assignment: { cluster_name: grpc, endpoints: [{ lb_endpoints: [{ endpoint: { address: GRPC } }] }] }
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
"#;

/// The owner's configuration: the listener `llm` has routes to engines, and the listener `without` has none.
fn owner() -> String {
    let listener = |name: &str, address: &str, routes: &str| {
        let text = LISTENER.replace("NAME", name);
        text.replace("ADDRESS", address).replace("ROUTES", routes)
    };
    let admin = "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n";
    let listeners = listener("llm", "LISTEN", ENGINES) + &listener("without", "WITHOUT", "");
    format!("{admin}static_resources:\n  listeners:{listeners}{CLUSTERS}")
}

/// A stack with the owner's configuration and Isotherm, and the address of the listener without Isotherm.
async fn start(replicas: &[&ScriptedReplica]) -> anyhow::Result<(Stack, SocketAddr)> {
    let (app, grpc) = (application().await?, grpc_application().await?);
    let reserved = port::reserve()?;
    let without = reserved.address();
    let stack = scripted_as_shipped("other-applications", replicas, 8);
    let stack = stack.envoy(move |document| {
        let addresses = [("WITHOUT", without), ("APP", app), ("GRPC", grpc)];
        *document = add(document, &owner(), &addresses)?;
        Ok(())
    });
    Ok((with_long_timeouts(stack).start().await?, without))
}

/// A stack whose engines have stopped, with the same address.
async fn start_without_engines() -> anyhow::Result<(Stack, SocketAddr)> {
    let replica = ScriptedReplica::start("a").await?;
    let (stack, without) = start(&[&replica]).await?;
    let client = Client::new(&stack.url(""))?;
    client.chat("s", &chat("hello")).await?.success()?;
    Ok((stack, without))
}

/// An HTTP/1.1 application. Each response shows the head of its request as it arrived.
async fn application() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    Ok(address)
}

async fn serve(mut stream: TcpStream) -> anyhow::Result<()> {
    let mut received = Vec::new();
    let head = loop {
        ensure!(stream.read_buf(&mut received).await? > 0, "no request");
        let end = received.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let body = received.split_off(end + 4);
            break String::from_utf8(std::mem::replace(&mut received, body))?;
        }
    };
    if head.starts_with("GET /socket ") {
        let answer =
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
        stream.write_all(answer.as_bytes()).await?;
        stream.write_all(head.as_bytes()).await?;
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await?;
        return Ok(());
    }
    if head.starts_with("GET /events ") {
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all(answer.as_bytes()).await?;
        stream.write_all(head.as_bytes()).await?;
        for number in 0..MESSAGES {
            let event = format!("data: {number}\n\n");
            stream.write_all(event.as_bytes()).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        return Ok(());
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.unwrap_or("0").parse()?;
    while received.len() < length {
        ensure!(stream.read_buf(&mut received).await? > 0, "the body ended");
    }
    if head.starts_with("GET /poll ") {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let start = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        head.len() + received.len()
    );
    stream.write_all(start.as_bytes()).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&received).await?;
    Ok(())
}

/// A gRPC application that answers each message of a stream.
struct Echo;

#[tonic::async_trait]
impl ExternalProcessor for Echo {
    type ProcessStream =
        std::pin::Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let answers = request
            .into_inner()
            .map(|message| message.map(|_| ProcessingResponse::default()));
        Ok(Response::new(Box::pin(answers)))
    }
}

async fn grpc_application() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server =
        tonic::transport::Server::builder().add_service(ExternalProcessorServer::new(Echo));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok(address)
}

/// Sends a whole request, and returns all bytes of the response but its date and its division into chunks.
async fn exchange(address: SocketAddr, head: &str, body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let (mut read, mut write) = stream.split();
    let mut response = Vec::new();
    let send = async {
        write.write_all(head.as_bytes()).await?;
        write.write_all(body).await
    };
    let (sent, received) = tokio::join!(send, read.read_to_end(&mut response));
    sent?;
    received?;
    Ok(without_date(&response))
}

fn without_date(response: &[u8]) -> Vec<u8> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = response.split_at(end.map_or(0, |end| end + 4));
    let head = String::from_utf8_lossy(head);
    let is_chunked = head.contains("transfer-encoding: chunked");
    let lines = head
        .split("\r\n")
        .filter(|line| !line.starts_with("date: "));
    let head = lines.collect::<Vec<_>>().join("\r\n");
    let body = if is_chunked {
        joined(body)
    } else {
        body.to_owned()
    };
    [head.as_bytes(), &body].concat()
}

/// The content of a chunked body; what does not parse stays at the end.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    let next = |chunks: &[u8]| {
        let end = chunks.windows(2).position(|two| two == b"\r\n")?;
        let length = str::from_utf8(chunks.get(..end)?).ok()?;
        Some((end + 2, usize::from_str_radix(length, 16).ok()?))
    };
    while let Some((start, length)) = next(chunks).filter(|(_, length)| *length > 0)
        && let Some(chunk) = chunks.get(start..start + length)
    {
        content.extend_from_slice(chunk);
        chunks = chunks.get(start + length + 2..).unwrap_or_default();
    }
    content.extend_from_slice(chunks);
    content
}

#[tokio::test]
async fn an_added_route_has_decisions() -> anyhow::Result<()> {
    const REQUESTS: u64 = 4;
    let _permit = permit::shared().await?;
    let [a, b] = ScriptedReplica::start_all(["a", "b"]).await?;
    let (stack, _) = start(&[&a, &b]).await?;
    let client = Client::new(&stack.url(""))?;
    for number in 0..REQUESTS {
        let body = chat(&format!("number {number}"));
        client.chat(&format!("s{number}"), &body).await?.success()?;
    }
    admin::wait_for_pool(stack.service(), "counters/finished_ok", REQUESTS).await?;
    assert_eq!(a.received().len() + b.received().len(), 4);
    Ok(())
}

#[tokio::test]
async fn uploads_events_and_polls_have_the_bytes_that_they_have_without_isotherm()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (stack, without) = start_without_engines().await?;
    let upload: Vec<u8> = (0..UPLOAD_BYTES).map(|at| ((at * 31) >> 7) as u8).collect();
    let own = "x-vllm-like: 1\r\nx-override-theme: dark\r\nconnection: close\r\n";
    let requests = [
        (
            format!(
                "PUT /files/a%2Fb//c?d HTTP/1.1\r\nhost: app\r\n{own}content-length: {UPLOAD_BYTES}\r\n\r\n"
            ),
            &*upload,
        ),
        (
            format!("GET /events HTTP/1.1\r\nhost: app\r\n{own}\r\n"),
            &[],
        ),
        (format!("GET /poll HTTP/1.1\r\nhost: app\r\n{own}\r\n"), &[]),
        (
            format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: other.example\r\n{own}content-length: 2\r\n\r\n"
            ),
            b"{}",
        ),
    ];
    for (head, body) in requests {
        let with = exchange(stack.envoy().address(), &head, body).await?;
        let plain = exchange(without, &head, body).await?;
        ensure!(plain.starts_with(b"HTTP/1.1 200"), "{head}");
        ensure!(plain.len() > body.len(), "{head}: {} bytes", plain.len());
        ensure!(
            with == plain,
            "{head}: {} bytes, without Isotherm {}",
            with.len(),
            plain.len()
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_websocket_has_the_bytes_that_it_has_without_isotherm() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (stack, without) = start_without_engines().await?;
    let mut seen = Vec::new();
    for address in [stack.envoy().address(), without] {
        let mut stream = TcpStream::connect(address).await?;
        let head = "GET /socket HTTP/1.1\r\nhost: app\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let mut received = Vec::new();
        for number in 0..MESSAGES {
            let message = format!("<message {number}>");
            stream.write_all(message.as_bytes()).await?;
            while !received.ends_with(message.as_bytes()) {
                ensure!(
                    stream.read_buf(&mut received).await? > 0,
                    "message {number}"
                );
            }
        }
        seen.push(without_date(&received));
    }
    let [with, plain] = <[Vec<u8>; 2]>::try_from(seen)
        .ok()
        .context("two connections")?;
    ensure!(plain.starts_with(b"HTTP/1.1 101"));
    ensure!(with == plain, "{}", String::from_utf8_lossy(&with));
    Ok(())
}

#[tokio::test]
async fn a_grpc_stream_in_both_directions_passes_as_without_isotherm() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let (stack, without) = start_without_engines().await?;
    for address in [stack.envoy().address(), without] {
        let mut client = ExternalProcessorClient::connect(format!("http://{address}")).await?;
        let (sender, messages) = tokio::sync::mpsc::channel(1);
        let answers = client.process(ReceiverStream::new(messages)).await?;
        let metadata = answers.metadata().clone();
        ensure!(
            metadata
                .keys()
                .all(|key| !format!("{key:?}").contains("isotherm")),
            "{metadata:?}"
        );
        let mut answers = answers.into_inner();
        for number in 0..MESSAGES {
            sender.send(ProcessingRequest::default()).await?;
            let answer = answers.message().await?;
            ensure!(answer.is_some(), "message {number}");
        }
        drop(sender);
        ensure!(answers.message().await?.is_none());
    }
    Ok(())
}
