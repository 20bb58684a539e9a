//! Certificates for tests.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use isotherm_ext_proc::config::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct IssuedCertificate {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl IssuedCertificate {
    pub(crate) fn write(&self, files: &TlsFiles, ca: &str) {
        fs::write(&files.key, &self.key).unwrap();
        fs::write(&files.certificate, &self.certificate).unwrap();
        fs::write(&files.ca, ca).unwrap();
    }
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("an authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// A certificate for one DNS name.
    pub(crate) fn issue(&self, name: &str) -> IssuedCertificate {
        self.issue_for(&[name])
    }

    pub(crate) fn issue_for(&self, names: &[&str]) -> IssuedCertificate {
        self.sign(params(names))
    }

    pub(crate) fn issue_expired(&self, name: &str) -> IssuedCertificate {
        let mut params = params(&[name]);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> IssuedCertificate {
        let key = KeyPair::generate().unwrap();
        IssuedCertificate {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// The valid files of a region.
    pub(crate) fn files(&self, region: &str) -> Files {
        Files::new(&self.issue(&format!("{region}.isotherm")), &self.pem)
    }
}

/// Expiry of the valid certificates: the start of the year 2100.
pub(crate) fn expires() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800)
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().copied().map(String::from).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = date_time_ymd(2100, 1, 1);
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params
}

/// The three files, in a temporary folder.
pub(crate) struct Files {
    folder: TempDir,
}

impl Files {
    pub(crate) fn new(issued: &IssuedCertificate, ca: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Self { folder };
        files.write(issued, ca);
        files
    }

    pub(crate) fn write(&self, issued: &IssuedCertificate, ca: &str) {
        issued.write(&self.paths(), ca);
    }

    pub(crate) fn paths(&self) -> TlsFiles {
        paths(self.folder.path())
    }
}

pub(crate) fn paths(folder: &Path) -> TlsFiles {
    TlsFiles {
        certificate: folder.join("region.pem"),
        key: folder.join("region.key"),
        ca: folder.join("ca.pem"),
    }
}
