//! Bodies of the sizes that matter to a filter that holds them, checked whole at the replica.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{Client, HttpResponse, MODEL, ScriptedReplica, WAIT_MAX, send};
use serde_json::Value;

/// Time between two bytes of a body that trickles.
const BYTE_GAP: Duration = Duration::from_millis(40);

/// Sizes of bodies: a chat, a long prompt, Envoy's default buffer limit, and images.
pub const SIZES: [usize; 4] = [1 << 10, 220 << 10, 1 << 20, 30 << 20];

/// The body of a chat request of about `bytes` bytes. The text has escapes, as real prompts do.
#[must_use]
pub fn chat_of(bytes: usize) -> String {
    const SENTENCE: &str = "It was a \\\"warm\\\" day in the far north, and the snow melted.\\n";
    let text = SENTENCE.repeat(bytes / SENTENCE.len());
    format!(
        r#"{{"model":"{MODEL}","max_tokens":1,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    )
}

/// Sends a body in a session, and reads the whole response.
pub async fn send_body(client: &Client, session: &str, body: &str) -> anyhow::Result<HttpResponse> {
    let request = client
        .post_chat(&Value::Null)
        .header("x-session-id", session);
    send(request.body(body.to_owned())).await
}

/// Sends a request over HTTP/1 with a pause after its headers and the first `first_bytes` of its body. Returns the beginning of
/// the response.
pub async fn send_with_pause(
    address: SocketAddr,
    body: &str,
    first_bytes: usize,
    pause: Duration,
) -> anyhow::Result<String> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let (first, rest) = body.as_bytes().split_at(first_bytes.min(body.len()));
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(first).await?;
    tokio::time::sleep(pause).await;
    stream.write_all(rest).await?;
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    Ok(String::from_utf8_lossy(&start).into_owned())
}

/// Opens a connection, and sends the head of a request with a body of this length.
pub async fn send_head(
    address: SocketAddr,
    headers: &str,
    body_bytes: usize,
) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: llm\r\nconnection: close\r\n{headers}\r\ncontent-length: {body_bytes}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    Ok(stream)
}

/// Sends a body byte by byte until the response is there, and returns the response.
pub async fn trickle(stream: TcpStream) -> anyhow::Result<String> {
    let (mut reader, mut writer) = stream.into_split();
    let sender = tokio::spawn(async move {
        while writer.write_all(b" ").await.is_ok() {
            tokio::time::sleep(BYTE_GAP).await;
        }
    });
    let mut response = Vec::new();
    let read = timeout(WAIT_MAX, reader.read_to_end(&mut response)).await;
    sender.abort();
    // Envoy may reset the connection behind its response.
    drop(read?);
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Sends a body of each of [`SIZES`], and checks that the replica receives exactly these.
pub async fn check_all_sizes(client: &Client, replica: &ScriptedReplica) -> anyhow::Result<()> {
    for bytes in SIZES {
        let body = chat_of(bytes);
        send_body(client, "s", &body).await?.success()?;
        let received = replica.received();
        let last = received.last().map(|request| &request.body);
        anyhow::ensure!(
            last.is_some_and(|last| *last == body),
            "a body of {bytes} bytes changed"
        );
    }
    Ok(())
}
