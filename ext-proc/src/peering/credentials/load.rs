//! Reading the files, and the check of what they hold.

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

use super::verify::KnownRegion;
use super::{CredentialsError, Loaded};
use crate::config::TlsFiles;
use crate::peering::identity::{Known, region_dns_name};

/// The longest file that is read, in bytes; a chain has a few kilobytes.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What both ends speak, as TLS knows it: HTTP/2.
const ALPN: &[u8] = b"h2";

pub(super) fn load(
    region: &str,
    files: &TlsFiles,
    known: &Known,
) -> Result<Loaded, CredentialsError> {
    let name = region_dns_name(region)?;
    let chain = certificates(&files.certificate)?;
    let key = key(&files.key)?;
    let roots = Arc::new(roots(&files.ca)?);
    let provider = Arc::new(ring::default_provider());

    let wrong_ca = |error: &dyn std::fmt::Display| content(&files.ca, error);
    let servers = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| wrong_ca(&error))?;
    let clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| wrong_ca(&error))?;
    let clients = Arc::new(KnownRegion::new(clients, known.clone()));

    let unfit = |why: String| CredentialsError::Certificate {
        file: files.certificate.clone(),
        name: name.to_str().into_owned(),
        why,
    };
    let (leaf, others) = chain
        .split_first()
        .ok_or_else(|| content(&files.certificate, &"holds no certificate"))?;
    let now = UnixTime::now();
    servers
        .verify_server_cert(leaf, others, &name, &[], now)
        .map_err(|error| unfit(error.to_string()))?;
    clients
        .verify_chain(leaf, others, now)
        .map_err(|error| unfit(format!("as a client's: {error}")))?;

    let expires = expiry(|at| servers.verify_server_cert(leaf, others, &name, &[], at));

    let unmatched = |error: Error| content(&files.key, &error);
    let mut client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unmatched)?
        .with_webpki_verifier(servers)
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(unmatched)?;
    client.resumption = Resumption::disabled();
    client.alpn_protocols = vec![ALPN.to_vec()];

    let mut server = ServerConfig::builder_with_provider(provider as Arc<CryptoProvider>)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(unmatched)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(unmatched)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Loaded {
        client: Arc::new(client),
        server: Arc::new(server),
        expires,
    })
}

/// When a certificate expires that is valid now. No parser of certificates is at hand but the verifier: it says since
/// when one is invalid that is used in a thousand years.
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
    let error = |why: String| CredentialsError::Read {
        file: file.to_owned(),
        why,
    };
    let metadata = std::fs::metadata(file).map_err(|why| error(why.to_string()))?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(error(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    std::fs::read(file).map_err(|why| error(why.to_string()))
}

fn content(file: &Path, why: &dyn std::fmt::Display) -> CredentialsError {
    CredentialsError::Content {
        file: file.to_owned(),
        why: why.to_string(),
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let bytes = read(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if found.is_empty() => Err(content(file, &"holds no certificate")),
        Ok(found) => Ok(found),
        Err(error) => Err(content(file, &error)),
    }
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| content(file, &error))
}

fn roots(file: &Path) -> Result<RootCertStore, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots
            .add(certificate)
            .map_err(|error| content(file, &error))?;
    }
    Ok(roots)
}
