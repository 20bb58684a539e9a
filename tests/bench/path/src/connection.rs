//! A client's connection, with one request at a time.
//!
//! Raw hyper instead of reqwest: the load generator sends each request on a known connection.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::prompts::{ConversationState, Prompts};
use super::workload::Workload;

/// Longest time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// An open connection, and the conversation of its client.
#[derive(Debug)]
pub(crate) struct Connection {
    target: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    conversation: ConversationState,
}

impl Connection {
    pub(crate) async fn open(target: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(target).await;
        let stream = stream.with_context(|| format!("cannot connect to {target}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection); // ends with the sender
        Ok(Self {
            target,
            sender,
            conversation: ConversationState::default(),
        })
    }

    /// Sends the next prompt of the client, and reads the response to its end.
    ///
    /// # Errors
    /// When the response is not a success, or does not end in time. The connection is of no use afterwards.
    pub(crate) async fn request(
        &mut self,
        workload: &Workload,
        prompts: &Prompts,
    ) -> anyhow::Result<()> {
        let prompt = prompts.next(workload, &mut self.conversation);
        let response = async {
            self.sender.ready().await?;
            let request = Request::post("/v1/chat/completions")
                .header(header::HOST, self.target.to_string())
                .header(header::CONTENT_TYPE, "application/json")
                .body(Full::new(prompt))?;
            let response = self.sender.send_request(request).await?;
            let status = response.status();
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
            }
            ensure!(status.is_success(), "status {status}");
            Ok(())
        };
        let response = tokio::time::timeout(REQUEST_MAX, response).await;
        response.context("no response in time")?
    }
}
