//! The file with the planner's state. Without it a restarted service would not know the day before.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use isotherm_planner::PlannerState;

/// The largest state file, in bytes: ten days of a thousand pools.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Reads the state; `None` without a file, or with one that is no state, which the log tells.
pub(super) fn read(file: &Path) -> Option<PlannerState> {
    let size = std::fs::metadata(file).ok()?.len();
    if size > FILE_BYTES_MAX {
        tracing::warn!(file = %file.display(), size, "the state of scaling is too large, and is not read");
        return None;
    }
    let text = std::fs::read(file).ok()?;
    match serde_json::from_slice(&text) {
        Ok(state) => Some(state),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "the state of scaling cannot be read; the history begins anew");
            None
        }
    }
}

/// Writes the state beside the file, then renames it: a crash leaves the old or the new state.
pub(super) async fn write(file: PathBuf, state: PlannerState) {
    let written = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        let mut partial = file.clone().into_os_string();
        partial.push(".partial");
        let mut output = std::io::BufWriter::new(std::fs::File::create(&partial)?);
        serde_json::to_writer(&mut output, &state)?;
        output.flush()?;
        output.get_ref().sync_all()?;
        std::fs::rename(partial, file)
    });
    match written.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "the state of scaling cannot be written (scaling.state_file)")
        }
        Err(error) => tracing::warn!(%error, "the state of scaling was not written"),
    }
}
