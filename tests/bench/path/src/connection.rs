//! A connection of a client, with one request at a time.
//!
//! Raw hyper instead of reqwest: the load generator needs a request on a known connection without a copy of its body.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::pieces::Pieces;

/// A request that takes longer has failed.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    target: SocketAddr,
    sender: SendRequest<Full<Pieces>>,
}

impl Connection {
    pub(crate) async fn open(target: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(target)
            .await
            .with_context(|| format!("cannot connect to {target}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection); // ends with the sender
        Ok(Self { target, sender })
    }

    /// Asks, and reads the answer to its end.
    ///
    /// # Errors
    /// When the answer is not a success, or does not come in time; the connection is of no use then.
    pub(crate) async fn ask(&mut self, prompt: Pieces) -> anyhow::Result<()> {
        let asked = async {
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
            if !status.is_success() {
                bail!("status {status}");
            }
            Ok(())
        };
        tokio::time::timeout(ANSWER_TIME_MAX, asked)
            .await
            .context("no answer in time")?
    }
}
