//! Loads the files again when they change.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Credentials, CredentialsError};
use crate::config::TlsFiles;
use crate::watched::Watched;

/// What became of a change.
pub type ReloadResult = Result<(), CredentialsError>;

impl Credentials {
    /// Follows the files for ever, and tells `hook` of each load that was tried.
    pub async fn follow(self: Arc<Self>, hook: impl Fn(&ReloadResult) + Send + 'static) {
        let TlsFiles {
            certificate,
            key,
            ca,
        } = self.files.clone();
        let mut watched = Watched::new([certificate, key, ca]);
        loop {
            watched.changed().await;
            let this = Arc::clone(&self);
            let loaded = tokio::task::spawn_blocking(move || this.reload()).await;
            // The runtime is shutting down.
            let Ok(loaded) = loaded else { return };
            match &loaded {
                Ok(()) => tracing::info!(
                    certificate = %self.files.certificate.display(),
                    expires_in_days = self.days_left(),
                    "certificates loaded"
                ),
                Err(error) => tracing::error!(
                    %error,
                    "new certificates refused; those loaded before stay in use until they expire"
                ),
            }
            hook(&loaded);
        }
    }

    fn days_left(&self) -> Option<u64> {
        let left = self.expires()?.duration_since(SystemTime::now()).ok()?;
        Some(left.as_secs() / (24 * 60 * 60))
    }
}
