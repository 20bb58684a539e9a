//! A fake engine with TLS that keeps the tokens of its requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::AUTHORIZATION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A running engine of vLLM's kind without waiting requests. Dropping it stops it.
#[derive(Debug)]
pub struct TlsEngine {
    /// The address of the engine.
    pub addr: SocketAddr,
    authorizations: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

impl TlsEngine {
    /// Starts an engine on a free port, with a certificate and its key in PEM.
    pub async fn start(certificate: &str, key: &str) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let authorizations = Arc::new(Mutex::default());
        let seen = Arc::clone(&authorizations);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), stream, Arc::clone(&seen)));
            }
        });
        Self {
            addr,
            authorizations,
            server,
        }
    }

    /// The headers `authorization` of all requests so far; an empty text for a request without the header.
    pub fn authorizations(&self) -> Vec<String> {
        self.authorizations.lock().unwrap().clone()
    }
}

impl Drop for TlsEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: tokio::net::TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
) {
    // The client may refuse the certificate.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let respond = move |request: Request<_>| {
        let authorization = request.headers().get(AUTHORIZATION);
        let text = authorization.map_or("", |value| value.to_str().unwrap());
        seen.lock().unwrap().push(text.to_owned());
        let super::FakeResponse::Page(path, page) = super::vllm(0) else {
            unreachable!("it is one page");
        };
        let mut response = Response::new(Full::new(Bytes::from(page)));
        if request.uri().path() != path {
            *response.status_mut() = hyper::StatusCode::NOT_FOUND;
        }
        async { Ok::<_, Infallible>(response) }
    };
    let respond = service_fn(move |request: Request<hyper::body::Incoming>| respond(request));
    // A connection may break.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), respond)
        .await;
}
