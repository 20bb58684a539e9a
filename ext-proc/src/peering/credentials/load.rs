//! Reads and checks the files.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier, danger::ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, Error, RootCertStore, ServerConfig, version,
};

use super::verify::RegionVerifier;
use super::{CredentialsError, TlsConfigs};
use crate::config::TlsFiles;
use crate::peering::allowed_regions::{AllowedRegions, region_dns_name};

/// The longest file, in bytes; a chain of certificates has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) fn load(
    region: &str,
    files: &TlsFiles,
    allowed: &AllowedRegions,
) -> Result<TlsConfigs, CredentialsError> {
    let name = region_dns_name(region).map_err(CredentialsError)?;
    let chain = certificates(&files.certificate)?;
    let key = key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let (servers, clients) = verifiers(&files.ca, allowed, &provider)?;
    let (leaf, others) = chain
        .split_first()
        .ok_or_else(|| content(&files.certificate, &"holds no certificate"))?;
    let now = UnixTime::now();
    servers
        .verify_server_cert(leaf, others, &name, &[], now)
        .map_err(|error| error.to_string())
        .and_then(|_| {
            let verified = clients.verify_chain(leaf, others, now);
            verified.map_err(|error| format!("as a client's: {error}"))
        })
        .map_err(|reason| {
            let reason = format!("not a valid certificate for {}: {reason}", name.to_str());
            content(&files.certificate, &reason)
        })?;
    let expires = expiry(|at| servers.verify_server_cert(leaf, others, &name, &[], at));

    let key_error = |error: Error| content(&files.key, &error);
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(key_error)?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(key_error)?;
    client.resumption = Resumption::disabled();

    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(key_error)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(key_error)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(TlsConfigs {
        client: Arc::new(client),
        server: Arc::new(server),
        expires,
    })
}

/// Returns the verifiers of the certificates of servers and of clients that one authority has signed.
fn verifiers(
    ca: &Path,
    allowed: &AllowedRegions,
    provider: &Arc<CryptoProvider>,
) -> Result<(Arc<WebPkiServerVerifier>, Arc<RegionVerifier>), CredentialsError> {
    let roots = Arc::new(authorities(ca)?);
    let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| content(ca, &error))?;
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| content(ca, &error))?;
    let clients = RegionVerifier::new(clients, allowed.clone());
    Ok((servers, Arc::new(clients)))
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

fn read(file: &Path) -> Result<Vec<u8>, CredentialsError> {
    let content = std::fs::metadata(file).and_then(|metadata| {
        if metadata.len() > FILE_BYTES_MAX {
            let reason = format!("more than {FILE_BYTES_MAX} bytes");
            return Err(std::io::Error::other(reason));
        }
        std::fs::read(file)
    });
    content.map_err(|error| CredentialsError(format!("cannot read {}: {error}", file.display())))
}

fn content(file: &Path, reason: &dyn std::fmt::Display) -> CredentialsError {
    CredentialsError(format!("{}: {reason}", file.display()))
}

/// Reads a chain of certificates.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(content(file, &"holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(content(file, &error)),
    }
}

/// Reads a private key.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| content(file, &error))
}

/// Reads the certificates of authorities.
pub(crate) fn authorities(file: &Path) -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| content(file, &error))?;
    }
    Ok(roots)
}
