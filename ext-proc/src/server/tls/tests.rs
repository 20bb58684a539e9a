use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme,
    SupportedProtocolVersion, client::WantsClientCert, version,
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

/// A client over a TLS version, before its own certificate is chosen.
fn client(
    version: &'static SupportedProtocolVersion,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
}

/// The certificate that a gateway sees, over a TLS version.
async fn certificate(tls: &GatewayTls, version: &'static SupportedProtocolVersion) -> Vec<u8> {
    let mut config = client(version).with_no_client_auth();
    config.alpn_protocols = vec![GRPC.to_vec()];
    let (client, server) = tokio::io::duplex(4_096);
    let name = ServerName::try_from("picker.default.svc").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, client);
    let (connected, accepted) = tokio::join!(connecting, tls.accept(server));
    accepted.unwrap();
    let connected = connected.unwrap();
    let (_, session) = connected.get_ref();
    assert_eq!(session.alpn_protocol(), Some(GRPC));
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
    let tls = GatewayTls::load(&ListenTls::default(), GRPC).unwrap();
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
    let tls = Arc::new(GatewayTls::load(&config, GRPC).unwrap());
    assert_eq!(certificate(&tls, &version::TLS12).await, old);
    let following = tokio::spawn(Arc::clone(&tls).follow());
    let new = write_certificate(folder.path());
    while certificate(&tls, &version::TLS12).await != new {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    following.abort();
}

/// An authority for clients, and a client's certificate and key that it has signed.
struct ClientAuthority {
    pem: String,
    issued: (CertificateDer<'static>, Vec<u8>),
}

impl ClientAuthority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let client = CertificateParams::new(vec!["envoy".to_owned()]).unwrap();
        let client_key = KeyPair::generate().unwrap();
        let issued = client.signed_by(&client_key, &issuer).unwrap();
        Self {
            pem,
            issued: (issued.der().clone(), client_key.serialize_der()),
        }
    }

    /// Whether the service accepts the authority's client, over a TLS version.
    async fn is_accepted(
        &self,
        tls: &GatewayTls,
        version: &'static SupportedProtocolVersion,
    ) -> bool {
        let (chain, key) = self.issued.clone();
        let key = PrivatePkcs8KeyDer::from(key).into();
        let config = client(version).with_client_auth_cert(vec![chain], key);
        is_accepted(tls, config.unwrap()).await
    }
}

async fn is_accepted(tls: &GatewayTls, config: ClientConfig) -> bool {
    let (client, server) = tokio::io::duplex(16_384);
    let name = ServerName::try_from("isotherm").unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, client);
    let (_connected, accepted) = tokio::join!(connecting, tls.accept(server));
    accepted.is_ok()
}

#[tokio::test]
async fn with_an_authority_only_its_clients_are_accepted_and_a_new_one_replaces_it() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (ClientAuthority::new(), ClientAuthority::new());
    let file = folder.path().join("clients.pem");
    std::fs::write(&file, &old.pem).unwrap();
    let config = ListenTls {
        client_ca: Some(file.clone()),
        ..ListenTls::default()
    };
    let tls = Arc::new(GatewayTls::load(&config, GRPC).unwrap());
    for version in [&version::TLS12, &version::TLS13] {
        assert!(old.is_accepted(&tls, version).await);
        assert!(!new.is_accepted(&tls, version).await);
        let without = client(version).with_no_client_auth();
        assert!(!is_accepted(&tls, without).await, "a client without one");
    }
    let following = tokio::spawn(Arc::clone(&tls).follow());
    std::fs::write(&file, &new.pem).unwrap();
    while !new.is_accepted(&tls, &version::TLS13).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!old.is_accepted(&tls, &version::TLS13).await);
    following.abort();
}
