//! Memory under pressure: before Envoy refuses requests, it resets the streams that buffer the most.

use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use isotherm_e2e::bodies::chat_of;
use isotherm_e2e::{Client, ScriptedReplica, WAIT_MAX, chat, permit, scripted};
use isotherm_harness::{Document, wait_until};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const HEAP: &str = "envoy.resource_monitors.fixed_heap";
const INJECTED: &str = "envoy.resource_monitors.injected_resource";
const STREAMS: usize = 4;
const HEAVY_BYTES: usize = 2 << 20;
const LIGHT_BYTES: usize = 100 << 10;

/// The part of Envoy's heap that is used, as the test says.
struct InjectedHeap(PathBuf);

impl InjectedHeap {
    fn create(directory: &Path) -> anyhow::Result<Self> {
        let heap = Self(directory.join("heap"));
        heap.set(0.0)?;
        Ok(heap)
    }

    /// Envoy reads a file again that another one replaces.
    fn set(&self, used: f64) -> anyhow::Result<()> {
        let next = self.0.with_extension("next");
        fs::write(&next, used.to_string())?;
        Ok(fs::rename(next, &self.0)?)
    }

    /// Puts the file in the place of the heap, for every action of the shipped configuration.
    fn apply(&self, document: &mut Document) -> anyhow::Result<()> {
        let monitor = json!({
            "name": INJECTED,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.resource_monitors.injected_resource.v3.InjectedResourceConfig",
                "filename": self.0,
            }
        });
        let monitors = "overload_manager/resource_monitors";
        document.set(&format!("{monitors}/name={HEAP}"), monitor)?;
        let actions = document.get_mut("overload_manager/actions")?;
        for action in actions.as_array_mut().context("no actions")? {
            let triggers = action["triggers"].as_array_mut().context("no triggers")?;
            for trigger in triggers {
                ensure!(trigger["name"] == HEAP, "another trigger: {trigger}");
                trigger["name"] = INJECTED.into();
            }
        }
        Ok(())
    }
}

type UploadBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A request whose body ends when the test says so.
struct Upload {
    response: JoinHandle<hyper::Result<Response<Incoming>>>,
    end: oneshot::Sender<Bytes>,
    rest: Bytes,
}

impl Upload {
    /// Sends the head of a chat and the first bytes of its body.
    fn begin(
        sender: &mut SendRequest<UploadBody>,
        url: &str,
        bytes: usize,
    ) -> anyhow::Result<Self> {
        let mut first = Bytes::from(chat_of(bytes + bytes / 2));
        let rest = first.split_off(bytes);
        let (end, received) = oneshot::channel();
        let last = stream::once(async { received.await.unwrap_or_default() });
        let pieces = stream::iter([first]).chain(last);
        let pieces = pieces.map(|piece| Ok(Frame::data(piece)));
        let request = Request::post(url)
            .header("content-type", "application/json")
            .body(StreamBody::new(pieces.boxed()))?;
        Ok(Self {
            response: tokio::spawn(sender.send_request(request)),
            end,
            rest,
        })
    }
}

#[tokio::test]
async fn the_heaviest_bodies_are_reset_and_other_requests_are_answered() -> anyhow::Result<()> {
    let _permit = permit::shared().await?;
    let replica = ScriptedReplica::start("a").await?;
    let directory = tempfile::tempdir()?;
    let heap = InjectedHeap::create(directory.path())?;
    let injected = InjectedHeap(heap.0.clone());
    let stack = scripted("memory-pressure", &[&replica], 64)
        .workers(1)
        .envoy(move |document| injected.apply(document));
    let stack = stack.start().await?;
    let connection = TcpStream::connect(stack.envoy().address()).await?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(connection)).await?;
    let connection = tokio::spawn(connection);
    let url = stack.url("/v1/chat/completions");
    let (mut heavy, mut light) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        heavy.push(Upload::begin(&mut sender, &url, HEAVY_BYTES)?);
        light.push(Upload::begin(&mut sender, &url, LIGHT_BYTES)?);
    }
    let sent = (STREAMS * (HEAVY_BYTES + LIGHT_BYTES)) as u64;
    wait_until(WAIT_MAX, "Envoy has read the bytes", async || {
        let received = stack.envoy().stat("http.llm.downstream_cx_rx_bytes_total");
        received.await.is_ok_and(|bytes| bytes >= sent)
    })
    .await?;

    // Streams of 1 MiB and more; Envoy would refuse requests from 0.95 on.
    heap.set(0.88)?;

    for upload in heavy {
        let response = timeout(WAIT_MAX, upload.response).await??;
        let error = response.err().context("a heavy stream is answered")?;
        drop(upload.end);
        assert!(!error.is_timeout(), "{error}");
    }
    let client = Client::new(&stack.url(""))?;
    for number in 0..10 {
        let prompt = chat(&format!("number {number}"));
        client.chat("s", &prompt).await?.success()?;
    }
    for upload in light {
        drop(upload.end.send(upload.rest));
        let response = timeout(WAIT_MAX, upload.response).await???;
        assert_eq!(response.status(), 200);
    }
    assert_eq!(replica.received().len(), 10 + STREAMS);
    connection.abort();
    Ok(())
}
