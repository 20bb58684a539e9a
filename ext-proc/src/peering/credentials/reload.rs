//! Reloads the files when they change.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Credentials, CredentialsError};
use crate::config::TlsFiles;
use crate::file_watcher::FileWatcher;

impl Credentials {
    /// Reloads the files on each change, and calls `on_reload` with each result. Never returns.
    pub async fn follow(
        self: Arc<Self>,
        on_reload: impl Fn(&Result<(), CredentialsError>) + Send + 'static,
    ) {
        let TlsFiles {
            certificate,
            key,
            ca,
        } = self.files.clone();
        let mut watcher = FileWatcher::new([certificate, key, ca]);
        loop {
            watcher.changed().await;
            let this = Arc::clone(&self);
            let loaded = tokio::task::spawn_blocking(move || this.reload()).await;
            // The runtime is shutting down.
            let Ok(loaded) = loaded else { return };
            match &loaded {
                Ok(()) => tracing::info!(
                    certificate = %self.files.certificate.display(),
                    expires_in_days = self.days_until_expiry(),
                    "certificates loaded"
                ),
                Err(error) => tracing::error!(
                    %error,
                    "new certificates refused; the old ones stay in use until they expire"
                ),
            }
            on_reload(&loaded);
        }
    }

    fn days_until_expiry(&self) -> Option<u64> {
        let left = self.expires()?.duration_since(SystemTime::now()).ok()?;
        Some(left.as_secs() / (24 * 60 * 60))
    }
}
