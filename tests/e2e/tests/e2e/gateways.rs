//! Gateways of the Inference Extension, without the filter: the service picks the endpoint from headers and bodies.

use std::convert::Infallible;

use anyhow::ensure;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::HeaderMap;
use hyper_util::rt::{TokioExecutor, TokioIo};
use isotherm_e2e::{
    Action, Client, GatewayShape, MODEL, ScriptedReplica, WAIT_MAX, admin, chat, permit, scripted,
    send,
};
use isotherm_harness::{Stack, StackBuilder, wait_until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Lengths of bodies: one read, several, Envoy's limit, and a prompt with images.
const LENGTHS: [usize; 4] = [1 << 10, 220 << 10, 1 << 20, 30 << 20];

const RETRY_POLICY: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm/retry_policy";

const FAILURE_MODE: &str = "static_resources/listeners/name=llm/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/name=llm/routes/0/typed_per_filter_config/envoy.filters.http.ext_proc/overrides/failure_mode_allow";

fn stack(shape: GatewayShape, name: &str, replicas: &[&ScriptedReplica]) -> StackBuilder {
    let name = format!("{name}-{shape:?}").to_lowercase();
    scripted(&name, replicas, 4).envoy(move |document| shape.apply(document))
}

/// A chat of this length with escapes.
fn body_of(bytes: usize) -> String {
    let sentence = "It was a \\\"warm\\\" day in the far north, and the snow melted.\\n";
    let text = sentence.repeat(bytes / sentence.len() + 1);
    format!(
        r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

/// Waits until no stream is open, and checks that nothing is held.
async fn check_released(stack: &Stack) -> anyhow::Result<()> {
    let service = stack.service();
    admin::wait_until_idle(service).await?;
    for gauge in ["isotherm_open_requests", "isotherm_held_bytes"] {
        admin::wait_for_metric(service, gauge, &[], |value| value == 0.0).await?;
    }
    Ok(())
}

#[tokio::test]
async fn bodies_of_any_size_arrive_unchanged_at_the_selected_replica() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replica = ScriptedReplica::start("a").await?;
        let stack = stack(shape, "sizes", &[&replica]).start().await?;
        let client = Client::new(&stack.url(""))?;
        for (count, bytes) in LENGTHS.into_iter().enumerate() {
            let body = body_of(bytes);
            let sent = send(client.post_chat(&Value::Null).body(body.clone())).await?;
            ensure!(sent.status == 200, "{shape:?}, {bytes}: {}", sent.text());
            ensure!(replica.received()[count].body == body, "{shape:?}, {bytes}");
        }
        let dispatched = admin::pool_number(stack.service(), "counters/arrived").await?;
        ensure!(dispatched == 4, "{shape:?}: {dispatched} decisions");
        check_released(&stack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_prompt_goes_where_its_prefix_is_cached() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replicas = ScriptedReplica::start_all(["a", "b", "c"]).await?;
        let all: Vec<_> = replicas.iter().collect();
        let stack = stack(shape, "prefix", &all).start().await?;
        let client = Client::new(&stack.url(""))?;
        for prompt in ["red ", "green ", "blue "] {
            let body = chat(&prompt.repeat(2_000));
            let first = client.chat("", &body).await?.success()?;
            for _ in 0..3 {
                let again = client.chat("", &body).await?.success()?;
                ensure!(again.served_by() == first.served_by(), "{shape:?}");
            }
        }
        admin::wait_until_idle(stack.service()).await?;
        let learned = "counters/measured_prompt_tokens";
        ensure!(
            admin::pool_number(stack.service(), learned).await? > 0,
            "{shape:?}: no usage was read"
        );
    }
    Ok(())
}

/// Envoy AI Gateway takes the endpoint from a header with one address, and sends headers before bodies.
#[tokio::test]
async fn behind_the_filter_envoy_ai_gateway_sends_no_body_of_a_prompt() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replicas = ScriptedReplica::start_all(["a", "b", "c"]).await?;
    let shape = GatewayShape::AiGatewayBuffered;
    let stack = scripted("ai-gateway-filter", &replicas.each_ref(), 4)
        .service(|config| config.set("ext_proc", json!({ "trusted_headers": "always" })))
        .envoy(move |document| shape.apply_behind_filter(document));
    let stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    let body = chat(&"red ".repeat(2_000));
    let first = client.chat("", &body).await?.success()?;
    for _ in 0..3 {
        let again = client.chat("", &body).await?.success()?;
        ensure!(again.served_by() == first.served_by());
    }
    admin::wait_until_idle(stack.service()).await?;
    let by_prefix = admin::counter(
        stack.service(),
        "isotherm_decisions_total",
        &[("reason", "prefix")],
    );
    ensure!(
        by_prefix.await? == 3,
        "the filter's fingerprint is not read"
    );
    let bodies = stack.service_traffic().await?.request_bodies;
    ensure!(bodies == 0, "{bodies} bytes of prompts");
    let unread = send(client.post_chat(&Value::Null).body("{")).await?;
    ensure!(
        unread.status < 500,
        "a body without a prompt: {}",
        unread.status
    );
    check_released(&stack).await
}

#[tokio::test]
async fn a_request_with_trailers_arrives_whole() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replica = ScriptedReplica::start("a").await?;
        let stack = stack(shape, "trailers", &[&replica]);
        // With retries, Envoy 1.40 sends such a body twice: when the request continues after its trailers, Envoy takes the
        // copy that its router keeps for a retry for a body that is still to be sent.
        let stack = stack.envoy(|document| document.remove(RETRY_POLICY).map(drop));
        let stack = stack.start().await?;
        let body = body_of(220 << 10);
        let pieces = body.as_bytes().chunks(10_000).map(Bytes::copy_from_slice);
        let mut frames: Vec<_> = pieces
            .map(|piece| Ok::<_, Infallible>(Frame::data(piece)))
            .collect();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "1".parse()?);
        frames.push(Ok(Frame::trailers(trailers)));
        let stream = TcpStream::connect(stack.envoy().address()).await?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await?;
        let connection = tokio::spawn(connection);
        let request = hyper::Request::post(stack.url("/v1/chat/completions"))
            .header("content-type", "application/json")
            .body(StreamBody::new(stream::iter(frames)))?;
        let response = sender.send_request(request).await?;
        ensure!(response.status() == 200, "{shape:?}: {}", response.status());
        drop(response.into_body().collect().await?);
        let received = &replica.received()[0].body;
        ensure!(
            received == &body,
            "{shape:?}: {} bytes arrived of {}",
            received.len(),
            body.len()
        );
        connection.abort();
        check_released(&stack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_streamed_response_is_not_held() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replica = ScriptedReplica::start("a").await?;
        replica.push_action(Action::Stream);
        let stack = stack(shape, "streamed", &[&replica]).start().await?;
        let client = Client::new(&stack.url(""))?;
        let mut response = client.post_chat(&chat("stream")).send().await?;
        let first = response.chunk().await?;
        ensure!(
            first.is_some(),
            "{shape:?}: no beginning of a response that goes on"
        );
        replica.release_all();
        while response.chunk().await?.is_some() {}
        check_released(&stack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_leaves_releases_its_request() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replica = ScriptedReplica::start("a").await?;
        replica.push_action(Action::Hold);
        let stack = stack(shape, "aborts", &[&replica]).start().await?;
        let client = Client::new(&stack.url(""))?;
        let held = client.spawn_chat("held");
        replica.wait_until_holding(1).await?;
        held.abort();
        admin::wait_until_idle(stack.service()).await?;
        let half = send_half(&stack).await?;
        wait_until_held(&stack, shape).await?;
        drop(half);
        check_released(&stack).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_picker_that_dies_fails_its_requests_and_hangs_none() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    for shape in GatewayShape::ALL {
        let replica = ScriptedReplica::start("a").await?;
        let mut stack = stack(shape, "dies", &[&replica]).start().await?;
        let mut half = send_half(&stack).await?;
        wait_until_held(&stack, shape).await?;
        stack.service_mut().kill()?;
        let status = read_status(&mut half).await?;
        ensure!(status.contains(" 50"), "{shape:?}, in the body: {status}");
        let client = Client::new(&stack.url(""))?;
        let response = send(client.post_chat(&chat("without a picker"))).await?;
        ensure!(response.status >= 500, "{shape:?}: {}", response.status);
        stack.service_mut().start().await?;
        client.chat("", &chat("back")).await?.success()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_fails_open_does_without_a_picker_until_a_piece_of_the_body_was_sent()
-> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let stack = stack(GatewayShape::Istio, "open", &[&replica]);
    // As Istio writes it for `failureMode: FailOpen`.
    let stack = stack.envoy(|document| document.set(FAILURE_MODE, true));
    let mut stack = stack.start().await?;
    let client = Client::new(&stack.url(""))?;
    client.chat("", &chat("with a picker")).await?.success()?;
    let mut half = send_half(&stack).await?;
    wait_until_held(&stack, GatewayShape::Istio).await?;
    stack.service_mut().kill()?;
    let status = read_status(&mut half).await?;
    ensure!(status.contains(" 500"), "in the body: {status}");
    // Until its health check notices, Envoy opens a stream, sends a piece, and fails.
    wait_until(WAIT_MAX, "requests without a picker to pass", || async {
        let response = client.chat("", &chat("without")).await;
        response.is_ok_and(|response| response.status == 200)
    })
    .await
}

/// Sends the beginning of a request whose body never ends.
async fn send_half(stack: &Stack) -> anyhow::Result<TcpStream> {
    let mut client = TcpStream::connect(stack.envoy().address()).await?;
    let body = body_of(4_000);
    let (half, _) = body.split_at(body.len() / 2);
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{half}",
        body.len()
    );
    client.write_all(request.as_bytes()).await?;
    Ok(client)
}

/// Waits until the service has the half of a body; a gateway that buffers sends only headers.
async fn wait_until_held(stack: &Stack, shape: GatewayShape) -> anyhow::Result<()> {
    let gauge = match shape.buffers_bodies() {
        true => "isotherm_open_requests",
        false => "isotherm_held_bytes",
    };
    admin::wait_for_metric(stack.service(), gauge, &[], |value| value > 0.0).await
}

async fn read_status(client: &mut TcpStream) -> anyhow::Result<String> {
    let mut line = String::new();
    let mut reader = BufReader::new(client);
    timeout(WAIT_MAX, reader.read_line(&mut line)).await??;
    Ok(line)
}
