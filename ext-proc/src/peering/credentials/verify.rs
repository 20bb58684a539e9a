//! The region in a certificate.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
};

use crate::peering::allowed_regions::{AllowedRegions, region_dns_name};

/// The one allowed region that a certificate is valid for.
/// Fails when the certificate is valid for none or for several: a wildcard (`*.isotherm`) does not identify the caller.
pub(in crate::peering) fn region_of(
    certificate: &CertificateDer<'_>,
    allowed: &AllowedRegions,
) -> Result<Arc<str>, Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    let is_valid_for = |region: &Arc<str>| {
        region_dns_name(region).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok())
    };
    let mut found = allowed.all().into_iter().filter(is_valid_for);
    match (found.next(), found.next()) {
        (Some(region), None) => Ok(region),
        _ => Err(CertificateError::NotValidForName.into()),
    }
}

/// Accepts certificates of the authority for an allowed region. The verifier checks the name during the handshake, so that a
/// TLS alert tells the caller why it is rejected.
#[derive(Debug)]
pub(super) struct RegionVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    allowed: AllowedRegions,
}

impl RegionVerifier {
    pub(super) fn new(chain: Arc<dyn ClientCertVerifier>, allowed: AllowedRegions) -> Self {
        Self { chain, allowed }
    }

    /// Checks the certificate without its name.
    pub(super) fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.chain.verify_client_cert(leaf, others, now)
    }
}

impl ClientCertVerifier for RegionVerifier {
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
        region_of(leaf, &self.allowed)?;
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
