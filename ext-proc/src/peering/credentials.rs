//! Certificate, key and authority of a region, by file.
//!
//! Loading checks the files as the other regions check them, so that a mistake shows here and not as a refusal there. When
//! the files change, the service loads them again: later handshakes use the new files, and open connections stay open.
//!
//! TLS 1.3 only: both ends are this program. No session is ever resumed: a resumed session skips the check of certificates,
//! so an authority that was removed from the file would stay trusted until its last ticket expired.

mod load;

use std::sync::Arc;
use std::time::SystemTime;

use tokio_rustls::rustls::{ClientConfig, ServerConfig};

use crate::config::TlsFiles;
use crate::reloaded_value::ReloadedValue;
pub(crate) use load::{authorities, certificates, key};

/// The current certificate, key and authority.
#[derive(Debug)]
pub struct Credentials(Arc<ReloadedValue<TlsConfigs>>);

/// Certificate of a region, and the reloads of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CertificateState {
    /// Time of expiry, if known.
    pub expires: Option<SystemTime>,
    /// Successful reloads.
    pub loaded: u64,
    /// Rejected reloads, after which the previous files stay in use.
    pub rejected: u64,
}

/// The TLS configurations that the files give.
#[derive(Debug)]
pub(super) struct TlsConfigs {
    pub(super) client: ClientConfig,
    pub(super) server: Arc<ServerConfig>,
    expires: Option<SystemTime>,
}

impl Credentials {
    /// Reads the files of `region`.
    /// Fails when a file cannot be read, or other regions would not accept the certificate.
    pub fn load(region: &str, files: TlsFiles) -> anyhow::Result<Self> {
        let region = region.to_owned();
        let watched = [&files.certificate, &files.key, &files.ca].map(Clone::clone);
        let read = move || load::load(&region, &files);
        Ok(Self(Arc::new(ReloadedValue::load(watched.into(), read)?)))
    }

    /// Reads the files again at each change. Never returns.
    pub async fn follow(&self) {
        Arc::clone(&self.0).follow().await;
    }

    /// State of the certificate.
    pub fn state(&self) -> CertificateState {
        let (loaded, rejected) = self.0.reloads();
        CertificateState {
            expires: self.0.current().expires,
            loaded,
            rejected,
        }
    }

    pub(super) fn current(&self) -> Arc<TlsConfigs> {
        self.0.current()
    }
}
