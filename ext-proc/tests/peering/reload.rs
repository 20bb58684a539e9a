//! Certificates that change under links that are up.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use isotherm_ext_proc::peering::{
    Credentials, LinkError, LocalIdentity, RefusedError, ReloadResult, TransportSecurity,
};
use tokio::task::JoinHandle;

use crate::authority::{Authority, Files, Issued, paths};
use crate::service::{Calling, Service, eventually, own, own_with, pace};

/// A region whose files are followed.
struct Follower {
    own: Arc<LocalIdentity>,
    loads: Arc<Mutex<Vec<ReloadResult>>>,
    task: JoinHandle<()>,
}

impl Follower {
    fn start(region: &str, folder: &Path, peers: &[&str]) -> Self {
        let credentials = Arc::new(Credentials::load(region, paths(folder)).unwrap());
        let loads = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&loads);
        let follow = Arc::clone(&credentials)
            .follow(move |loaded| note.lock().unwrap().push(loaded.clone()));
        Self {
            own: own_with(region, TransportSecurity::Tls(credentials), peers),
            loads,
            task: tokio::spawn(follow),
        }
    }

    async fn loads_well(&self) {
        eventually(|| self.loads.lock().unwrap().last() == Some(&Ok(()))).await;
    }

    async fn refuses(&self) {
        let loads = || self.loads.lock().unwrap();
        eventually(|| loads().last().is_some_and(Result::is_err)).await;
    }

    fn forget(&self) {
        self.loads.lock().unwrap().clear();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn gets_through(files: &Files, eu: &Service) -> bool {
    let us = own("us", files.paths(), &["eu"]);
    let mut us = Calling::start(&us, "eu", eu.address, pace());
    match us.next().await {
        isotherm_ext_proc::peering::LinkEvent::Up { .. } => true,
        isotherm_ext_proc::peering::LinkEvent::Down {
            why: LinkError::Refused(RefusedError::Tls(_)),
            ..
        } => false,
        other => panic!("neither let in nor refused: {other:?}"),
    }
}

#[tokio::test]
async fn all_three_files_are_replaced_under_a_link_that_is_up() {
    let (old, new) = (Authority::new(), Authority::new());
    let folder = old.files("eu");
    let path = folder.paths().ca;
    let follower = Follower::start("eu", path.parent().unwrap(), &["us"]);
    let eu = Service::start(Arc::clone(&follower.own)).await;
    let (old_us, new_us) = (old.files("us"), new.files("us"));
    let us = own("us", old_us.paths(), &["eu"]);
    let mut up = Calling::start(&us, "eu", eu.address, pace());
    let session = up.up().await;
    up.asks(session, 1).await;
    assert!(!gets_through(&new_us, &eu).await);

    follower.loads_well().await;
    follower.forget();
    folder.write(&new.issue("eu.isotherm"), &new.pem);
    follower.loads_well().await;
    assert!(gets_through(&new_us, &eu).await);
    assert!(!gets_through(&old_us, &eu).await);
    // The link that was up has noticed nothing.
    up.asks(session, 2).await;
}

#[tokio::test]
async fn broken_files_change_nothing() {
    let authority = Authority::new();
    let folder = authority.files("eu");
    let right = authority.issue("eu.isotherm");
    let path = folder.paths().ca;
    let follower = Follower::start("eu", path.parent().unwrap(), &["us"]);
    let eu = Service::start(Arc::clone(&follower.own)).await;
    let us = authority.files("us");
    follower.loads_well().await;

    let garbage = "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n";
    let cases = [
        (
            Issued {
                certificate: garbage.into(),
                key: right.key.clone(),
            },
            authority.pem.as_str(),
        ),
        (
            Issued {
                certificate: right.certificate.clone(),
                key: String::new(),
            },
            &authority.pem,
        ),
        (
            Issued {
                certificate: right.certificate.clone(),
                key: right.key.clone(),
            },
            garbage,
        ),
        (authority.issue_expired("eu.isotherm"), &authority.pem),
        (authority.issue("asia.isotherm"), &authority.pem),
    ];
    for (number, (issued, ca)) in cases.iter().enumerate() {
        follower.forget();
        folder.write(issued, ca);
        follower.refuses().await;
        assert!(gets_through(&us, &eu).await, "case {number}");
    }
    follower.forget();
    fs::remove_file(folder.paths().key).unwrap();
    follower.refuses().await;
    assert!(gets_through(&us, &eu).await);
    follower.forget();
    folder.write(&right, &authority.pem);
    follower.loads_well().await;
    assert!(gets_through(&us, &eu).await);
}

/// As Kubernetes mounts secrets: the files are links into a folder that is itself a link, and only that is replaced.
#[tokio::test]
async fn a_mounted_secret_is_followed_through_its_links() {
    let (old, new) = (Authority::new(), Authority::new());
    let mount = tempfile::tempdir().unwrap();
    let at = |name: &str| mount.path().join(name);
    let version = |name: &str, authority: &Authority| {
        fs::create_dir(at(name)).unwrap();
        let issued = authority.issue("eu.isotherm");
        let files = paths(&at(name));
        fs::write(files.certificate, &issued.certificate).unwrap();
        fs::write(files.key, &issued.key).unwrap();
        fs::write(files.ca, &authority.pem).unwrap();
    };
    let link = |to: &Path, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
    version("..1", &old);
    link(Path::new("..1"), at("..data"));
    for name in ["region.pem", "region.key", "ca.pem"] {
        link(&Path::new("..data").join(name), at(name));
    }
    let follower = Follower::start("eu", mount.path(), &["us"]);
    let eu = Service::start(Arc::clone(&follower.own)).await;
    follower.loads_well().await;
    follower.forget();
    assert!(gets_through(&old.files("us"), &eu).await);

    version("..2", &new);
    link(Path::new("..2"), at("..data_tmp"));
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    follower.loads_well().await;
    assert!(gets_through(&new.files("us"), &eu).await);
    assert!(!gets_through(&old.files("us"), &eu).await);
}
