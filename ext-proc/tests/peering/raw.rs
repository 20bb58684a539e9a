//! Ends of links that break the rules of the protocol.

use std::net::SocketAddr;
use std::sync::Arc;

use isotherm_ext_proc::peering::wire::{self, Envelope, Hello, Payload};
use isotherm_ext_proc::peering::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

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
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
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
    let mut config = match issued.map(chain) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let socket = TcpStream::connect(address).await?;
    let name = "eu.isotherm".try_into().unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await
}

pub(crate) const RAW_SESSION: u64 = 5;

pub(crate) fn hello(region: &str) -> Envelope {
    Envelope {
        session: RAW_SESSION,
        payload: Some(Payload::Hello(Hello {
            protocol_version: PROTOCOL_VERSION,
            region: region.to_owned(),
            incarnation: 99,
            software_version: String::new(),
        })),
    }
}

/// Opens a stream without TLS. The sender's messages go to the service after `first`.
pub(crate) async fn stream(
    address: SocketAddr,
    first: Envelope,
) -> Result<(mpsc::Sender<Envelope>, Streaming<Envelope>), Status> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = Grpc::new(endpoint.connect().await.unwrap())
        .max_encoding_message_size(8 * MESSAGE_BYTES_MAX);
    client.ready().await.unwrap();
    let (sender, messages) = mpsc::channel(4);
    sender.send(first).await.unwrap();
    let request = Request::new(ReceiverStream::new(messages));
    let path = PathAndQuery::from_static(wire::PATH);
    let codec = ProstCodec::<Envelope, Envelope>::default();
    let replies = client.streaming(request, path, codec).await?;
    Ok((sender, replies.into_inner()))
}

/// The status with which the service refuses a stream that begins with `first`.
pub(crate) async fn refusal(address: SocketAddr, first: Envelope) -> Code {
    let (_sender, mut replies) = stream(address, first).await.unwrap();
    replies.message().await.unwrap_err().code()
}
