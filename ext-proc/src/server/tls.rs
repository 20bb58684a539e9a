//! TLS towards gateways, and of the batch API: with a certificate from files, which the service reads again when they change, or with a
//! self-signed one that it makes at its start. With `client_ca`, TLS is mutual: the service accepts only clients whose
//! certificate an authority of that file has signed.
//!
//! No session is resumed: a resumed session skips the check of the client's certificate, so a removed authority would stay
//! trusted until its last ticket expired.
//!
//! Gateways of the Inference Extension encrypt the connection to an endpoint picker and check no certificate, so a
//! self-signed one serves them. Envoy's upstream connections offer TLS 1.2 unless they are configured otherwise.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::server::TlsStream;

use crate::config::ListenTls;
use crate::peering::{authorities, certificates, key};
use crate::reloaded_value::ReloadedValue;

/// Longest time of a handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// The name in a self-signed certificate.
const SELF_SIGNED_NAME: &str = "isotherm";
/// The ALPN protocol of gRPC.
pub(super) const GRPC: &[u8] = b"h2";

/// The certificate of the service, and the authorities of its clients.
#[derive(Debug)]
pub(crate) struct GatewayTls(Arc<ReloadedValue<ServerConfig>>);

impl GatewayTls {
    /// Reads the files, or makes a certificate, for clients that speak the ALPN protocol `alpn`.
    /// Fails when a file cannot be read, or the key does not belong to the certificate.
    pub(crate) fn load(config: &ListenTls, alpn: &'static [u8]) -> anyhow::Result<Self> {
        let config = config.clone();
        let files = [&config.certificate, &config.key, &config.client_ca];
        let files = files.into_iter().flatten().cloned().collect();
        let read = move || server_config(&config, alpn);
        Ok(Self(Arc::new(ReloadedValue::load(files, read)?)))
    }

    /// Encrypts an accepted connection.
    /// Fails when the handshake fails or takes too long.
    pub(crate) async fn accept<S>(&self, stream: S) -> anyhow::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.0.current());
        let handshake = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream));
        let handshake = handshake.await.context("the TLS handshake took too long")?;
        handshake.context("the TLS handshake failed")
    }

    /// Reads changed files again. Later connections use their content.
    pub(crate) async fn follow(self: Arc<Self>) {
        Arc::clone(&self.0).follow().await;
    }
}

fn server_config(config: &ListenTls, alpn: &[u8]) -> anyhow::Result<ServerConfig> {
    let (chain, key) = match (&config.certificate, &config.key) {
        (Some(chain_file), Some(key_file)) => (certificates(chain_file)?, key(key_file)?),
        _ => self_signed()?,
    };
    let provider = Arc::new(ring::default_provider());
    let clients = match &config.client_ca {
        Some(file) => WebPkiClientVerifier::builder_with_provider(
            Arc::new(authorities(file)?),
            Arc::clone(&provider),
        )
        .build()
        .with_context(|| format!("{} (`tls.client_ca`) cannot be used", file.display()))?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .context("the certificate and the key of `tls` cannot be used")?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![alpn.to_vec()];
    Ok(config)
}

fn self_signed() -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
    let made = rcgen::generate_simple_self_signed(vec![SELF_SIGNED_NAME.to_owned()])
        .context("cannot make a certificate")?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    Ok((vec![made.cert.der().clone()], key.into()))
}

#[cfg(test)]
mod tests;
