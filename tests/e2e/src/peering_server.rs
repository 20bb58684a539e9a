//! A server of the peering protocol, without TLS, whose replies a test decides.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use isotherm_harness::TcpServer;

/// Starts a server that answers each request with the bytes that `reply` returns.
pub(crate) async fn serve_peering<F>(
    reply: impl Fn(Request<Bytes>) -> F + Clone + Send + Sync + 'static,
) -> anyhow::Result<TcpServer>
where
    F: Future<Output = anyhow::Result<Bytes>> + Send + 'static,
{
    TcpServer::start(move |connection| {
        let reply = reply.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let reply = reply.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let reply = reply(Request::from_parts(head, body)).await?;
                anyhow::Ok(Response::new(Full::new(reply)))
            }
        });
        let served = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
        async move { drop(served.await) } // ends when the caller disconnects
    })
    .await
}
