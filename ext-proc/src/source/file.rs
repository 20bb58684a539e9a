//! Follows the configuration file.

use std::path::PathBuf;
use std::sync::Arc;

use super::reload::Reloader;
use crate::watched::Watched;

/// Reloads whenever the file's contents change. It may have changed since it was loaded, so the first look reloads in
/// any case.
pub(super) async fn follow(path: PathBuf, reloader: Arc<Reloader>) {
    let mut watched = Watched::new([path]);
    loop {
        watched.changed().await;
        // The outcome has been logged. A file that is gone is a mistake as well.
        let _ = reloader.reload("file changed").await;
    }
}
