//! Certificates of regions: one private authority, and for each region a certificate with the DNS name `REGION.isotherm` for
//! both ends of a connection.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::document::replace_file;

/// A private certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Creates an authority.
    pub fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "isotherm test authority");
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// Writes a certificate for `region` into a directory: `region.pem`, `region.key` and `ca.pem`. Each file replaces its
    /// predecessor at once.
    pub fn issue(&self, region: &str, directory: &Path) -> anyhow::Result<()> {
        let mut params = CertificateParams::new(vec![format!("{region}.isotherm")])?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.distinguished_name.push(DnType::CommonName, region);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        fs::create_dir_all(directory)?;
        // The key first: a program that watches the certificate then finds the key that belongs to it.
        replace_file(&directory.join("region.key"), &key.serialize_pem())?;
        replace_file(&directory.join("region.pem"), &certificate.pem())?;
        replace_file(&directory.join("ca.pem"), &self.pem)
    }
}
