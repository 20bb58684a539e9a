//! Reads and checks the files.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, ensure};
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error, RootCertStore, ServerConfig, version,
};

use super::TlsConfigs;
use crate::config::TlsFiles;
use crate::peering::host::server_name;

/// The longest file, in bytes; a chain of certificates has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) fn load(region: &str, files: &TlsFiles) -> anyhow::Result<TlsConfigs> {
    let name = server_name(region).map_err(anyhow::Error::msg)?;
    let chain = certificates(&files.certificate)?;
    let key = key(&files.key)?;
    let in_file = |file: &Path| file.display().to_string();
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(authorities(&files.ca)?);
    let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone());
    let servers = servers.build().with_context(|| in_file(&files.ca))?;
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone());
    let clients = clients.build().with_context(|| in_file(&files.ca))?;
    let (leaf, others) = chain.split_first().context("no certificate")?;
    let now = UnixTime::now();
    let as_server = servers.verify_server_cert(leaf, others, &name, &[], now);
    let as_client = clients.verify_client_cert(leaf, others, now);
    as_server
        .map(drop)
        .and(as_client.map(drop))
        .with_context(|| {
            let (file, name) = (in_file(&files.certificate), name.to_str());
            format!("{file}: not a valid certificate for {name}")
        })?;
    let expires = expiry(|at| servers.verify_server_cert(leaf, others, &name, &[], at));

    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .with_context(|| in_file(&files.key))?;
    client.resumption = Resumption::disabled();

    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .with_context(|| in_file(&files.key))?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(TlsConfigs {
        client,
        server: Arc::new(server),
        expires,
    })
}

/// Expiry of a certificate that is valid now. The verifier reads it: for a time in a thousand years its error names the
/// expiry. Rejected: a parser of certificates for this one field.
fn expiry<T>(verify: impl FnOnce(UnixTime) -> Result<T, Error>) -> Option<SystemTime> {
    const THOUSAND_YEARS: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);
    let then = UnixTime::since_unix_epoch(THOUSAND_YEARS);
    let Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) =
        verify(then)
    else {
        return None;
    };
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(not_after.as_secs()))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let context = || format!("cannot read {}", file.display());
    let bytes = std::fs::metadata(file).with_context(context)?.len();
    ensure!(
        bytes <= FILE_BYTES_MAX,
        "{}: more than {FILE_BYTES_MAX} bytes",
        context()
    );
    std::fs::read(file).with_context(context)
}

/// Reads a chain of certificates.
pub(crate) fn certificates(file: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.with_context(|| file.display().to_string())?;
    ensure!(
        !found.is_empty(),
        "{}: holds no certificate",
        file.display()
    );
    Ok(found)
}

/// Reads a private key.
pub(crate) fn key(file: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(&read(file)?).with_context(|| file.display().to_string())
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(file: &Path) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added.with_context(|| file.display().to_string())?;
    }
    Ok(roots)
}
