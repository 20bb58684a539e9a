//! Reloads of certificates while links are up.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use isotherm_ext_proc::peering::{
    CertificateState, Credentials, LinkError, LocalIdentity, TransportSecurity,
};
use tokio::task::JoinHandle;

use crate::authority::{Authority, Files, IssuedCertificate, paths};
use crate::service::{Client, Service, file_identity, identity, timeouts, wait_until};

/// A region that reloads its files on changes.
struct ReloadingRegion {
    identity: Arc<LocalIdentity>,
    credentials: Arc<Credentials>,
    /// State of the certificate at the last change.
    before: Mutex<CertificateState>,
    task: JoinHandle<()>,
}

impl ReloadingRegion {
    fn start(region: &str, folder: &Path, peers: &[&str]) -> Self {
        let credentials = Arc::new(Credentials::load(region, paths(folder)).unwrap());
        let security = TransportSecurity::Tls(Arc::clone(&credentials));
        let followed = Arc::clone(&credentials);
        Self {
            identity: identity(region, security, peers),
            before: Mutex::new(credentials.state()),
            credentials,
            task: tokio::spawn(async move { followed.follow().await }),
        }
    }

    async fn wait_for_success(&self) {
        let before = self.before.lock().unwrap().loaded;
        wait_until(|| self.credentials.state().loaded > before).await;
    }

    async fn wait_for_error(&self) {
        let before = self.before.lock().unwrap().rejected;
        wait_until(|| self.credentials.state().rejected > before).await;
    }

    fn clear(&self) {
        *self.before.lock().unwrap() = self.credentials.state();
    }
}

impl Drop for ReloadingRegion {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn can_connect(files: &Files, eu: &Service) -> bool {
    let us = file_identity("us", files, &["eu"]);
    let mut us = Client::start(&us, "eu", eu.address, timeouts());
    match us.next().await {
        Ok(_) => true,
        Err(LinkError::Refused(reason)) if reason.starts_with("TLS: ") => false,
        other => panic!("neither up nor refused: {other:?}"),
    }
}

#[tokio::test]
async fn replacing_all_three_files_keeps_an_established_link() {
    let (old, new) = (Authority::new(), Authority::new());
    let folder = old.files("eu");
    let path = folder.paths().ca;
    let eu_region = ReloadingRegion::start("eu", path.parent().unwrap(), &["us"]);
    let eu = Service::start(Arc::clone(&eu_region.identity)).await;
    let (old_us, new_us) = (old.files("us"), new.files("us"));
    let us = file_identity("us", &old_us, &["eu"]);
    let mut up = Client::start(&us, "eu", eu.address, timeouts());
    up.wait_until_up().await;
    assert!(!can_connect(&new_us, &eu).await);

    eu_region.wait_for_success().await;
    eu_region.clear();
    folder.write(&new.issue("eu.isotherm"), &new.pem);
    eu_region.wait_for_success().await;
    assert!(can_connect(&new_us, &eu).await);
    assert!(!can_connect(&old_us, &eu).await);
    // The link from before the change is still up; some of its heartbeats waited to be read.
    for _ in 0..20 {
        up.wait_until_up().await;
    }
}

/// The peer's log of rejections shows which certificate the caller used.
#[tokio::test]
async fn a_caller_uses_new_certificates_at_once_and_keeps_its_link_when_the_peer_refuses_them() {
    let (authority, unknown) = (Authority::new(), Authority::new());
    let folder = authority.files("us");
    let path = folder.paths().ca;
    let us_region = ReloadingRegion::start("us", path.parent().unwrap(), &["eu"]);
    let eu = Service::start_eu(&authority).await;
    us_region.wait_for_success().await;
    us_region.clear();
    let mut up = Client::start(&us_region.identity, "eu", eu.address, timeouts());
    up.wait_until_up().await;

    let trusted = [authority.pem.as_str(), &unknown.pem].concat();
    folder.write(&unknown.issue("us.isotherm"), &trusted);
    us_region.wait_for_success().await;
    wait_until(|| !eu.recorder.rejections.lock().unwrap().is_empty()).await;
    for _ in 0..20 {
        up.wait_until_up().await;
    }
}

#[tokio::test]
async fn invalid_files_change_nothing() {
    let authority = Authority::new();
    let folder = authority.files("eu");
    let right = authority.issue("eu.isotherm");
    let path = folder.paths().ca;
    let eu_region = ReloadingRegion::start("eu", path.parent().unwrap(), &["us"]);
    let eu = Service::start(Arc::clone(&eu_region.identity)).await;
    let us = authority.files("us");
    eu_region.wait_for_success().await;

    let garbage = "-----BEGIN CERTIFICATE-----\ngarbage\n-----END CERTIFICATE-----\n";
    let pair = |certificate: &str, key: &str| IssuedCertificate {
        certificate: certificate.into(),
        key: key.into(),
    };
    let cases = [
        (pair(garbage, &right.key), authority.pem.as_str()),
        (pair(&right.certificate, ""), &authority.pem),
        (pair(&right.certificate, &right.key), garbage),
        (authority.issue_expired("eu.isotherm"), &authority.pem),
        (authority.issue("asia.isotherm"), &authority.pem),
    ];
    for (number, (issued, ca)) in cases.iter().enumerate() {
        eu_region.clear();
        folder.write(issued, ca);
        eu_region.wait_for_error().await;
        assert!(can_connect(&us, &eu).await, "case {number}");
    }
    eu_region.clear();
    fs::remove_file(folder.paths().key).unwrap();
    eu_region.wait_for_error().await;
    assert!(can_connect(&us, &eu).await);
    eu_region.clear();
    folder.write(&right, &authority.pem);
    eu_region.wait_for_success().await;
    assert!(can_connect(&us, &eu).await);
}

/// Kubernetes mounts a secret as symbolic links into a folder that is itself a link, and replaces only that link.
#[tokio::test]
async fn a_mounted_secret_is_reloaded_through_its_symbolic_links() {
    let (old, new) = (Authority::new(), Authority::new());
    let mount = tempfile::tempdir().unwrap();
    let at = |name: &str| mount.path().join(name);
    let version = |name: &str, authority: &Authority| {
        fs::create_dir(at(name)).unwrap();
        let issued = authority.issue("eu.isotherm");
        issued.write(&paths(&at(name)), &authority.pem);
    };
    let link = |to: &Path, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
    version("..1", &old);
    link(Path::new("..1"), at("..data"));
    for name in ["region.pem", "region.key", "ca.pem"] {
        link(&Path::new("..data").join(name), at(name));
    }
    let eu_region = ReloadingRegion::start("eu", mount.path(), &["us"]);
    let eu = Service::start(Arc::clone(&eu_region.identity)).await;
    eu_region.wait_for_success().await;
    eu_region.clear();
    assert!(can_connect(&old.files("us"), &eu).await);

    version("..2", &new);
    link(Path::new("..2"), at("..data_tmp"));
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    eu_region.wait_for_success().await;
    assert!(can_connect(&new.files("us"), &eu).await);
    assert!(!can_connect(&old.files("us"), &eu).await);
}
