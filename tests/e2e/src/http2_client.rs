//! Many requests on one HTTP/2 connection.
//!
//! The client uses hyper, because reqwest hides response trailers and does not keep the order of requests on a connection.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An HTTP/2 connection; it closes when it is dropped.
#[derive(Debug)]
pub struct Http2Client {
    authority: String,
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<()>,
    /// Certificate that the server presented, in DER; empty without TLS.
    pub server_certificate: Vec<u8>,
}

/// A whole response with its trailers.
#[derive(Debug)]
pub struct Http2Response {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// Trailers.
    pub trailers: HeaderMap,
}

impl Http2Client {
    /// Connects without TLS.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        Self::handshake(address.to_string(), stream, Vec::new()).await
    }

    /// Connects to the gateway of `region` with the client certificate in a directory.
    pub async fn connect_to_gateway(
        region: &str,
        address: SocketAddr,
        certificates: &Path,
    ) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_file_iter(certificates.join("ca.pem"))? {
            roots.add(root?)?;
        }
        let chain = CertificateDer::pem_file_iter(certificates.join("region.pem"))?;
        let key = PrivateKeyDer::from_pem_file(certificates.join("region.key"))?;
        let mut config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.collect::<Result<_, _>>()?, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let name = ServerName::try_from(format!("{region}.isotherm"))?;
        let stream = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(name, stream).await?;
        let chain = stream.get_ref().1.peer_certificates();
        let certificate = chain.and_then(|chain| chain.first());
        let certificate = certificate.context("no server certificate")?.to_vec();
        Self::handshake("isotherm".into(), stream, certificate).await
    }

    async fn handshake(
        authority: String,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        server_certificate: Vec<u8>,
    ) -> anyhow::Result<Self> {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let connection = tokio::spawn(async move {
            drop(connection.await); // an error here fails each request, too
        });
        Ok(Self {
            authority,
            sender,
            connection,
            server_certificate,
        })
    }

    /// Sends a `GET` request; the future reads the whole response.
    pub fn get(
        &mut self,
        path: &str,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<Http2Response>> + Send + use<>> {
        self.request(Method::GET, path, &[], String::new())
    }

    /// Sends a `POST` request with a JSON body; the future reads the whole response. Requests enter the connection in the
    /// order of these calls.
    pub fn post(
        &mut self,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<Http2Response>> + Send + use<>> {
        self.request(Method::POST, path, headers, body)
    }

    fn request(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<Http2Response>> + Send + use<>> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.authority))
            .header("content-type", "application/json")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let response = self
            .sender
            .send_request(request.context("an invalid request")?);
        Ok(async move {
            let (head, body) = response.await?.into_parts();
            let body = body.collect().await?;
            Ok(Http2Response {
                status: head.status.as_u16(),
                headers: head.headers,
                trailers: body.trailers().cloned().unwrap_or_default(),
                body: body.to_bytes(),
            })
        })
    }
}

impl Drop for Http2Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}
