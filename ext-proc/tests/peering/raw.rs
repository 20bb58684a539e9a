//! Ends of links that break the rules of the protocol.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_ext_proc::peering::{Message, REGION_HEADER, host};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::authority::IssuedCertificate;

fn chain(issued: &IssuedCertificate) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    (vec![certificate], key)
}

/// Accepts one TLS connection without asking for a certificate, and does nothing with it.
pub(crate) async fn tls_server(
    listener: TcpListener,
    issued: &IssuedCertificate,
) -> std::io::Result<server::TlsStream<TcpStream>> {
    let (chain, key) = chain(issued);
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let (socket, _) = listener.accept().await?;
    TlsAcceptor::from(Arc::new(config)).accept(socket).await
}

/// Opens a TLS connection to `eu`, with a certificate or without.
pub(crate) async fn tls_client(
    address: SocketAddr,
    ca: &str,
    issued: Option<&IssuedCertificate>,
) -> std::io::Result<client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match issued.map(chain) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    let socket = TcpStream::connect(address).await?;
    let name = "eu.isotherm".try_into().unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
}

/// A request of `us` to `eu`, without TLS and without the checks of a sender.
pub(crate) fn request(path: &str, message: &Message) -> Vec<u8> {
    let mut body = Vec::new();
    ciborium::into_writer(message, &mut body).unwrap();
    let (host, region, length) = (host("eu"), REGION_HEADER, body.len());
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\n{region}: us\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.into_bytes(), body].concat()
}

/// Sends a request, and returns the status of the response.
pub(crate) async fn status(address: SocketAddr, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    // The service may respond before it has read a long request.
    let _ = socket.write_all(request).await;
    let mut status = [0; 12];
    socket.read_exact(&mut status).await.unwrap();
    String::from_utf8_lossy(&status[9..]).into_owned()
}
