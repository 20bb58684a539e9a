//! Certificates of regions and siblings: one private authority, and for each region a certificate with the DNS name
//! `REGION.isotherm` for both ends of a connection.
//!
//! [`Authority::in_folder`] makes `ca.pem` and `ca.key` once, and reads them afterwards, also where another tool made them.
//! [`Authority::issue`] writes `region.pem`, `region.key` and `ca.pem` of a region.

mod links;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// Days for which an authority is valid.
const AUTHORITY_DAYS: i64 = 3650;
/// Days for which the certificate of a region is valid.
const REGION_DAYS: i64 = 90;
/// The most by which clocks of regions may differ.
const CLOCKS_DIFFER: Duration = Duration::hours(1);

/// A private certificate authority.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Creates an authority that exists in memory only.
    pub fn new() -> anyhow::Result<Self> {
        let (authority, _) = Self::create()?;
        Ok(authority)
    }

    /// Reads the authority of a folder. A folder without one gets one.
    pub fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        let [certificate, key] = ["ca.pem", "ca.key"].map(|name| folder.join(name));
        if !key.exists() && !certificate.exists() {
            let (authority, text) = Self::create()?;
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder);
            made.with_context(|| format!("cannot make {}", folder.display()))?;
            write(&key, &text)?;
            write(&certificate, &authority.pem)?;
            return Ok(authority);
        }
        let read = |path: &Path| {
            fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let [pem, key] = [read(&certificate)?, read(&key)?];
        let key = KeyPair::from_pem(&key).context("ca.key is no private key in PEM (PKCS #8)")?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key);
        let issuer = issuer.context("ca.pem is no certificate of an authority in PEM")?;
        Ok(Self { issuer, pem })
    }

    fn create() -> anyhow::Result<(Self, String)> {
        let mut params = valid_for(CertificateParams::new(Vec::new())?, AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let names = &mut params.distinguished_name;
        names.push(DnType::CommonName, "Isotherm regions");
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        let text = key.serialize_pem();
        let issuer = Issuer::new(params, key);
        Ok((Self { issuer, pem }, text))
    }

    /// Writes a certificate for a region into a folder: `region.pem`, `region.key` and `ca.pem`. The three files replace
    /// their predecessors at once.
    pub fn issue(&self, region: &str, folder: &Path) -> anyhow::Result<()> {
        let params = CertificateParams::new(vec![format!("{region}.isotherm")])?;
        let mut params = valid_for(params, REGION_DAYS);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
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
        links::replace(folder, &files)
            .with_context(|| format!("cannot write into {}", folder.display()))
    }
}

fn valid_for(mut params: CertificateParams, days: i64) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCKS_DIFFER;
    params.not_after = now + Duration::days(days);
    params
}

/// Writes a file that its owner alone may read.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const FILES: [&str; 3] = ["ca.pem", "region.pem", "region.key"];

    fn contents(folder: &Path) -> [String; 3] {
        FILES.map(|name| fs::read_to_string(folder.join(name)).unwrap())
    }

    /// Issues a certificate by the authority of a folder.
    fn issue(authority: &Path, tls: &Path) {
        let authority = Authority::in_folder(authority).unwrap();
        authority.issue("us", tls).unwrap();
    }

    #[test]
    fn a_second_call_keeps_the_authority_and_replaces_the_certificate() {
        let root = tempfile::tempdir().unwrap();
        let [authority, tls] = ["authority", "us/tls"].map(|name| root.path().join(name));
        issue(&authority, &tls);
        let first = contents(&tls);
        issue(&authority, &tls);
        let second = contents(&tls);
        assert_eq!(first[0], second[0]);
        assert!(first[1] != second[1] && first[2] != second[2]);
        let folders = fs::read_dir(&tls)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let is_folder = |path: &std::path::PathBuf| !path.is_symlink() && path.is_dir();
        assert_eq!(folders.filter(is_folder).count(), 1);
    }

    #[test]
    fn only_the_owner_reads_a_key() {
        let root = tempfile::tempdir().unwrap();
        let [authority, tls] = ["authority", "us/tls"].map(|name| root.path().join(name));
        issue(&authority, &tls);
        for key in [authority.join("ca.key"), tls.join("region.key")] {
            assert_eq!(fs::metadata(key).unwrap().mode() & 0o077, 0);
        }
    }

    #[test]
    fn half_an_authority_is_refused_and_kept() {
        let root = tempfile::tempdir().unwrap();
        Authority::in_folder(root.path()).unwrap();
        fs::remove_file(root.path().join("ca.key")).unwrap();
        let error = format!("{:#}", Authority::in_folder(root.path()).unwrap_err());
        assert!(error.contains("ca.key"), "{error}");
        assert!(root.path().join("ca.pem").exists());
    }
}
