//! Certificate, key and authority of a region, by file.
//!
//! Loading checks the files as the other regions check them, so that a mistake shows here and not as a refusal there. When
//! the files change, the service loads them again: later handshakes use the new files, and open connections stay open. If
//! the new files are invalid, the service logs an error and keeps the old ones.
//!
//! TLS 1.3 only: both ends are this program. No session is ever resumed: a resumed session skips the check of certificates,
//! so an authority that was removed from the file would stay trusted until its last ticket expired.

mod load;
mod reload;
mod verify;

use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::RwLock;
use tokio_rustls::rustls::{ClientConfig, ServerConfig};

use super::allowed_regions::AllowedRegions;
use crate::config::TlsFiles;
pub(crate) use load::{authorities, certificates, key};
pub(super) use verify::region_of;

/// Why credentials cannot be used: the file, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CredentialsError(String);

/// The current certificate, key and authority.
#[derive(Debug)]
pub struct Credentials {
    region: String,
    files: TlsFiles,
    allowed: AllowedRegions,
    current: RwLock<Arc<TlsConfigs>>,
}

/// The TLS configurations that the files give.
#[derive(Debug)]
pub(super) struct TlsConfigs {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    expires: Option<SystemTime>,
}

impl Credentials {
    /// Reads the files of `region`.
    /// Fails when a file cannot be read, or other regions would not accept the certificate.
    pub fn load(region: &str, files: TlsFiles) -> Result<Self, CredentialsError> {
        let allowed = AllowedRegions::only(region);
        let loaded = load::load(region, &files, &allowed)?;
        Ok(Self {
            region: region.to_owned(),
            files,
            allowed,
            current: RwLock::new(Arc::new(loaded)),
        })
    }

    /// Reads the files again. Later handshakes use their content; after an error they use the old content.
    fn reload(&self) -> Result<(), CredentialsError> {
        let loaded = load::load(&self.region, &self.files, &self.allowed)?;
        *self.current.write() = Arc::new(loaded);
        Ok(())
    }

    /// Expiry of the current certificate, where the system's clock can represent it.
    pub fn expires(&self) -> Option<SystemTime> {
        self.current().expires
    }

    pub(super) fn allowed(&self) -> &AllowedRegions {
        &self.allowed
    }

    pub(super) fn current(&self) -> Arc<TlsConfigs> {
        Arc::clone(&self.current.read())
    }
}
