//! Certificate, key and authority, by file.
//!
//! What is loaded is checked as the other regions will check it, so that a mistake is seen here and not as a refusal
//! there. When the files change they are loaded again: handshakes from then on use the new ones, links that are up stay
//! up. New files that are wrong change nothing; what was loaded before stays in use, and it is said loudly.
//!
//! TLS 1.3 only: both ends are this program. No session is ever resumed, since a resumed one skips the check of
//! certificates, and an authority that was taken out of the file would be believed until its last ticket expired.

mod load;
mod reload;
mod verify;

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use tokio_rustls::rustls::{ClientConfig, ServerConfig};

use super::identity::{Known, NameError};
use crate::config::TlsFiles;
pub use reload::ReloadResult;
pub(super) use verify::region_of;

/// Why credentials cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A file does not hold what it should.
    #[error("{}: {why}", .file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The certificate is none that other regions would accept from this one.
    #[error("{}: not a valid certificate for {name}: {why}", .file.display())]
    Certificate {
        /// The file.
        file: PathBuf,
        /// The name that it must have.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The region's name cannot be in a certificate.
    #[error(transparent)]
    Name(#[from] NameError),
}

/// What TLS is set up with, now; handshakes that have begun keep what they began with.
#[derive(Debug)]
pub struct Credentials {
    region: String,
    files: TlsFiles,
    known: Known,
    current: RwLock<Arc<Loaded>>,
}

/// One state of the files.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    expires: Option<SystemTime>,
}

impl Credentials {
    /// Reads the files of `region`.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the certificate is none that other regions would accept.
    pub fn load(region: &str, files: TlsFiles) -> Result<Self, CredentialsError> {
        let known = Known::only(region);
        let loaded = load::load(region, &files, &known)?;
        Ok(Self {
            region: region.to_owned(),
            files,
            known,
            current: RwLock::new(Arc::new(loaded)),
        })
    }

    /// Reads the files again. What is read is used for handshakes from now on.
    ///
    /// # Errors
    ///
    /// As [`Self::load`]; then what was used before stays in use.
    pub fn reload(&self) -> Result<(), CredentialsError> {
        let loaded = load::load(&self.region, &self.files, &self.known)?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(loaded);
        Ok(())
    }

    /// When the certificate in use expires, where the system's clock can say it.
    #[must_use]
    pub fn expires(&self) -> Option<SystemTime> {
        self.current().expires
    }

    pub(super) fn known(&self) -> &Known {
        &self.known
    }

    pub(super) fn current(&self) -> Arc<Loaded> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}
