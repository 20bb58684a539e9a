//! Clients in a closed loop, and prompts that nobody has sent before.
//!
//! Each client has one connection and sends the next request when the last answer has ended, so together they find
//! how much the way carries. A prompt is a number that has not been used, then a piece of a text that all share: what
//! is sent is unique from its first bytes on and costs the generator no copy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::buf::Chain;
use bytes::{Buf as _, Bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::scenario::MODEL;
use crate::text;

/// How much text the prompts are cut from.
const TEXT_BYTES: usize = 1 << 20;
/// Pieces begin at a multiple of this, which shares no factor with the room there is.
const STEP_BYTES: u64 = 7_919;
/// Spreads consecutive numbers over all 64 bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// A request that takes longer has failed.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

type Prompt = Full<Chain<Chain<Bytes, Bytes>, Bytes>>;

/// What is asked, and how it is answered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Its name in the table.
    pub name: &'static str,
    /// Length of each prompt.
    pub prompt_bytes: usize,
    /// Chunks of each answer, besides the last; 0 for a whole answer that is not a stream.
    pub chunks: u32,
}

/// What became of the requests of one window.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Answered with status 200, to the end.
    pub good: u64,
    /// Everything else.
    pub failed: u64,
    /// From the first request to the end of the last answer.
    pub took: Duration,
}

/// A source of unique prompts.
#[derive(Debug)]
pub struct Prompts {
    text: Bytes,
    next: AtomicU64,
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            text: text::bytes(1, TEXT_BYTES).into(),
            next: AtomicU64::new(1),
        }
    }
}

impl Prompts {
    fn next(&self, workload: &Workload) -> Prompt {
        let bytes = workload.prompt_bytes;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let head = format!(
            r#"{{"model":"{MODEL}","stream":{},"messages":[{{"role":"user","content":"{:016x} "#,
            workload.chunks > 0,
            number.wrapping_mul(SPREAD)
        );
        let room = (self.text.len().saturating_sub(bytes) as u64).max(1);
        let start = (number.wrapping_mul(STEP_BYTES) % room) as usize;
        let end = (start + bytes).min(self.text.len());
        let piece = self.text.slice(start..end);
        let tail = Bytes::from_static(br#""}]}"#);
        Full::new(Bytes::from(head).chain(piece).chain(tail))
    }
}

/// Sends requests over this many connections for this long.
///
/// # Errors
/// When a connection cannot be opened, or no request at all is answered.
pub async fn drive(
    target: SocketAddr,
    workload: &Workload,
    connections: u16,
    time: Duration,
    prompts: &Arc<Prompts>,
) -> anyhow::Result<Tally> {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (prompts, workload) = (Arc::clone(prompts), workload.clone());
        clients.spawn(async move { client(target, &workload, start + time, &prompts).await });
    }
    let (mut good, mut failed) = (0, 0);
    while let Some(ended) = clients.join_next().await {
        let (of_client, failures) = ended??;
        good += of_client;
        failed += failures;
    }
    if good == 0 {
        bail!("none of {failed} requests to {target} was answered");
    }
    let took = start.elapsed();
    Ok(Tally { good, failed, took })
}

async fn client(
    target: SocketAddr,
    workload: &Workload,
    end: Instant,
    prompts: &Prompts,
) -> anyhow::Result<(u64, u64)> {
    let (mut good, mut failed) = (0, 0);
    let mut sender = connect(target).await?;
    while Instant::now() < end {
        let asked = ask(&mut sender, target, prompts.next(workload));
        match tokio::time::timeout(ANSWER_TIME_MAX, asked).await {
            Ok(Ok(())) => good += 1,
            Ok(Err(_)) | Err(_) => {
                failed += 1;
                sender = connect(target).await?;
            }
        }
    }
    Ok((good, failed))
}

async fn connect(target: SocketAddr) -> anyhow::Result<SendRequest<Prompt>> {
    let stream = TcpStream::connect(target)
        .await
        .with_context(|| format!("cannot connect to {target}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection); // ends with the sender
    Ok(sender)
}

async fn ask(
    sender: &mut SendRequest<Prompt>,
    target: SocketAddr,
    prompt: Prompt,
) -> anyhow::Result<()> {
    sender.ready().await?;
    let request = Request::post("/v1/chat/completions")
        .header(header::HOST, target.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .body(prompt)?;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    if !status.is_success() {
        bail!("status {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::upstream::Upstream;

    async fn text_of(prompt: Prompt) -> String {
        let bytes = prompt.collect().await.unwrap().to_bytes();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    fn workload(prompt_bytes: usize, chunks: u32) -> Workload {
        Workload {
            name: "test",
            prompt_bytes,
            chunks,
        }
    }

    #[tokio::test]
    async fn prompts_are_json_of_their_length_and_no_two_begin_alike() {
        let (prompts, asked) = (Prompts::default(), workload(4_096, 0));
        let one = text_of(prompts.next(&asked)).await;
        let two = text_of(prompts.next(&asked)).await;
        let value: serde_json::Value = serde_json::from_str(&one).unwrap();
        let content = value["messages"][0]["content"].as_str().unwrap();
        assert_eq!(content.len(), 4_096 + "0123456789abcdef ".len());
        let differ = one.bytes().zip(two.bytes()).position(|(a, b)| a != b);
        assert!(differ.is_some_and(|at| at < 90), "{differ:?}");
    }

    #[tokio::test]
    async fn clients_are_answered_by_the_upstream_whole_or_in_chunks() {
        let upstream = Upstream::start(1).await.unwrap();
        let target = *upstream.addresses().first().unwrap();
        for chunks in [0, 3] {
            upstream.answer_in(chunks);
            let asked = workload(400_000, chunks);
            let time = Duration::from_millis(100);
            let tally = drive(target, &asked, 2, time, &Arc::default())
                .await
                .unwrap();
            assert!(tally.good > 0 && tally.failed == 0, "{tally:?}");
        }
    }
}
