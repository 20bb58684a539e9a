//! Which region a caller is.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};

use crate::peering::identity::{Known, region_dns_name};

/// The one known region that a certificate is for.
///
/// # Errors
///
/// When it is for none, or for several: a certificate that speaks for everybody (`*.isotherm`) says nothing about who
/// it is that calls.
pub(in crate::peering) fn region_of(
    certificate: &CertificateDer<'_>,
    known: &Known,
) -> Result<Arc<str>, Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let is_for = |region: &Arc<str>| {
        region_dns_name(region).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    let mut found = known.all().into_iter().filter(is_for);
    match (found.next(), found.next()) {
        (Some(region), None) => Ok(region),
        _ => Err(CertificateError::NotValidForName.into()),
    }
}

/// Accepts whom the authority has signed and who is a known region. The name is looked at during the handshake, so that
/// the caller is told by a TLS alert what is wrong.
#[derive(Debug)]
pub(super) struct KnownRegion {
    chain: Arc<dyn ClientCertVerifier>,
    known: Known,
}

impl KnownRegion {
    pub(super) fn new(chain: Arc<dyn ClientCertVerifier>, known: Known) -> Self {
        Self { chain, known }
    }

    /// The check without the name.
    pub(super) fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.chain.verify_client_cert(leaf, others, now)
    }
}

impl ClientCertVerifier for KnownRegion {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verify_chain(leaf, others, now)?;
        region_of(leaf, &self.known)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
