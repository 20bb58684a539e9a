use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, SignatureScheme, SupportedProtocolVersion, version,
};

use super::*;

/// A gateway that checks no certificate, as those of the Inference Extension do.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = ring::default_provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// The certificate that a gateway sees, over a TLS version.
async fn certificate(tls: &GatewayTls, version: &'static SupportedProtocolVersion) -> Vec<u8> {
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let (client, server) = tokio::io::duplex(4_096);
    let name = ServerName::try_from("picker.default.svc").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, client);
    let (connected, accepted) = tokio::join!(connecting, tls.accept(server));
    accepted.unwrap();
    let connected = connected.unwrap();
    let (_, session) = connected.get_ref();
    assert_eq!(session.alpn_protocol(), Some(ALPN));
    session.peer_certificates().unwrap()[0].to_vec()
}

fn write_certificate(folder: &std::path::Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec!["isotherm".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().to_vec()
}

#[tokio::test]
async fn without_files_the_service_makes_a_certificate() {
    let tls = GatewayTls::load(&ListenTls::default()).unwrap();
    let first = certificate(&tls, &version::TLS12).await;
    assert_eq!(first, certificate(&tls, &version::TLS13).await);
}

#[tokio::test]
async fn a_changed_certificate_is_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let old = write_certificate(folder.path());
    let config = ListenTls {
        certificate: Some(folder.path().join("tls.crt")),
        key: Some(folder.path().join("tls.key")),
        ..ListenTls::default()
    };
    let tls = Arc::new(GatewayTls::load(&config).unwrap());
    assert_eq!(certificate(&tls, &version::TLS12).await, old);
    let following = tokio::spawn(Arc::clone(&tls).follow());
    let new = write_certificate(folder.path());
    while certificate(&tls, &version::TLS12).await != new {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    following.abort();
}
