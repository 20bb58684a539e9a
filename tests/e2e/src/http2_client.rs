//! Many requests on one HTTP/2 connection.
//!
//! For what a client library hides (response trailers), and for a thousand requests at once, which would otherwise be
//! a thousand sockets in each of three processes: more than the usual limit of open files allows.

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// One connection.
#[derive(Debug)]
pub struct Http2Client {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
}

/// Everything that a client can see of an answer.
#[derive(Debug)]
pub struct Http2Response {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// What came after the body.
    pub trailers: HeaderMap,
}

impl Http2Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there, or nobody who speaks HTTP/2.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let connection = tokio::spawn(async move {
            // What goes wrong here goes wrong for each request, too.
            drop(connection.await);
        });
        Ok(Self {
            address,
            sender,
            connection,
        })
    }

    /// Sends a `POST` of JSON; the future reads the whole answer. The request is on its way when this returns.
    ///
    /// # Errors
    /// When a header is none; in the future, when there is no whole answer.
    pub fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<Http2Response>> + Send + 'static> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .context("not a request")?;
        let sent = self.sender.send_request(request);
        Ok(async move {
            let (head, body) = sent.await?.into_parts();
            let body = body.collect().await?;
            let trailers = body.trailers().cloned().unwrap_or_default();
            Ok(Http2Response {
                status: head.status.as_u16(),
                headers: head.headers,
                body: body.to_bytes(),
                trailers,
            })
        })
    }
}

impl Drop for Http2Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
