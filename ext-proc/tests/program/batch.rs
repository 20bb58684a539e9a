//! `isotherm batch serve` and `work` as processes: TLS with certificates that change, and pages for operators.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::fake::wait_until;
use crate::monitoring::read;

const TIME_MAX: Duration = Duration::from_secs(60);

/// A running command of `isotherm batch`; dropping it kills it.
struct BatchProcess(Child);

impl BatchProcess {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_isotherm"))
            .current_dir(folder)
            .arg("batch")
            .args(arguments)
            .args(["--url", "http://127.0.0.1:1"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for BatchProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Sends a request for a page, and reads the whole response.
fn get(mut stream: impl std::io::Read + std::io::Write, path: &str) -> std::io::Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut response = String::new();
    // A server that closes TLS without a notice has sent its response all the same.
    match stream.read_to_string(&mut response) {
        Err(error) if response.is_empty() => Err(error),
        _ => Ok(response),
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIME_MAX))?;
    Ok(stream)
}

/// A page by plaintext; empty while there is none.
fn page(address: SocketAddr, path: &str) -> String {
    let response = connect(address).and_then(|stream| get(stream, path));
    response.unwrap_or_default()
}

/// A page by TLS from a server that has this certificate and no other; empty while there is none.
fn tls_page(address: SocketAddr, certificate: &CertifiedKey<KeyPair>, path: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let client = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = connect(address).map(|stream| StreamOwned::new(client, stream));
    let response = stream.and_then(|stream| get(stream, path));
    response.unwrap_or_default()
}

/// Makes a certificate, and writes it with its key.
fn write_certificate(folder: &Path) -> CertifiedKey<KeyPair> {
    let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    made
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

#[tokio::test]
async fn the_batch_api_speaks_tls_alone_with_the_certificate_that_the_files_have() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_certificate(folder.path());
    let api = free_address();
    let listen = api.to_string();
    let files = ["--tls-cert", "tls.crt", "--tls-key", "tls.key"];
    let arguments = [&["serve", "--listen", &listen][..], &files].concat();
    let _server = BatchProcess::start(folder.path(), &arguments);
    wait_until("the API by TLS", || {
        tls_page(api, &first, "/healthz").starts_with(OK)
    })
    .await;
    assert!(!page(api, "/healthz").starts_with("HTTP"));
    assert!(tls_page(api, &first, "/v1/batches").starts_with(OK));
    let second = write_certificate(folder.path());
    wait_until("the new certificate", || {
        tls_page(api, &second, "/healthz").starts_with(OK)
    })
    .await;
    assert_eq!(tls_page(api, &first, "/healthz"), "");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_read_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .current_dir(folder.path())
        .args(["batch", "serve", "--url", "http://127.0.0.1:1"])
        .args(["--tls-cert", "missing.crt", "--tls-key", "missing.key"])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("missing.crt"),
        "{error}"
    );
}

#[tokio::test]
async fn workers_have_metrics_and_health_for_which_no_key_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keys"), "team-a sk-1\n").unwrap();
    let [api, of_serve, of_work] = [(); 3].map(|()| free_address());
    let [listen, serve, work] = [api, of_serve, of_work].map(|address| address.to_string());
    let keys = ["--keys-file", "keys", "--metrics-listen", &serve];
    let arguments = [&["serve", "--listen", &listen][..], &keys].concat();
    let _serve = BatchProcess::start(folder.path(), &arguments);
    wait_until("the API", || page(api, "/readyz").starts_with(OK)).await;
    let _work = BatchProcess::start(folder.path(), &["work", "--metrics-listen", &work]);
    wait_until("the worker", || page(of_work, "/healthz").starts_with(OK)).await;
    assert!(page(api, "/v1/batches").starts_with("HTTP/1.1 401"));
    let reference = read("docs/metrics.md");
    let (_, families) = reference.split_once("\n## Batch work\n").unwrap();
    let (families, _) = families.split_once("\n## ").unwrap();
    let families = families.split("\n| `").skip(1);
    let families: Vec<&str> = families.map(|row| row.split('`').next().unwrap()).collect();
    assert!((9..=12).contains(&families.len()), "{families:?}");
    for address in [api, of_serve, of_work] {
        let page = page(address, "/metrics");
        for family in &families {
            let has_sample = page.lines().any(|line| line.starts_with(family));
            assert!(has_sample, "{family} of {address}: {page}");
        }
    }
}
