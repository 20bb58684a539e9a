//! Certificates of regions: one private authority, and for each region a certificate with the DNS name `REGION.isotherm` for
//! both ends of a connection.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

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

    /// Writes a certificate for `region` into a directory: `region.pem`, `region.key` and `ca.pem`. The three files replace
    /// their predecessors at once.
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
        let files = [
            ("region.key", key.serialize_pem()),
            ("region.pem", certificate.pem()),
            ("ca.pem", self.pem.clone()),
        ];
        mount(directory, &files)
    }
}

/// Writes files the way Kubernetes mounts a secret: as links through `..data`, which one rename replaces.
///
/// Envoy reads key and certificate as one secret and the authority as another. When the files change one by one, it may read a
/// key without its certificate, and then keeps the old authority for some clusters until the next change.
fn mount(directory: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    let data = directory.join("..data");
    let old = fs::read_link(&data).ok();
    let new = tempfile::Builder::new()
        .prefix("..")
        .tempdir_in(directory)?
        .keep();
    for (name, text) in files {
        fs::write(new.join(name), text)?;
        if old.is_none() {
            symlink(Path::new("..data").join(name), directory.join(name))?;
        }
    }
    let name = new.file_name().context("a folder without a name")?;
    let link = directory.join("..data.new");
    symlink(name, &link)?;
    fs::rename(&link, &data)?;
    if let Some(old) = old {
        fs::remove_dir_all(directory.join(old))?;
    }
    Ok(())
}
