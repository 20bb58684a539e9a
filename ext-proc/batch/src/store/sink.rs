//! Writes a file into the database while it arrives, in pages of lines.

use super::{NewFile, Store, StoreError, StoreResult};
use crate::limits::Limits;
use crate::pace::UnixMs;
use crate::splitter::{LineSplitter, SplitError};

/// Lines that are written at once.
const PAGE_LINES: usize = 500;
/// Bytes that are written at once, beyond one line.
const PAGE_BYTES: usize = 4 << 20;

/// A file on its way into the database.
#[derive(Debug)]
pub struct FileSink {
    store: Store,
    file: String,
    splitter: LineSplitter,
    page: Vec<Vec<u8>>,
    page_bytes: usize,
    next_number: i64,
}

/// Error of a file on its way into the database.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The file does not fit.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FileSink {
    /// Begins a file.
    ///
    /// # Errors
    /// The database fails.
    pub async fn begin(store: &Store, file: &NewFile, limits: &Limits) -> StoreResult<Self> {
        store.begin_file(file).await?;
        Ok(Self {
            store: store.clone(),
            file: file.id.clone(),
            splitter: LineSplitter::new(
                limits.line_bytes_max,
                limits.file_lines_max,
                limits.file_bytes_max,
            ),
            page: Vec::new(),
            page_bytes: 0,
            next_number: 1,
        })
    }

    /// Takes the next bytes. Returns whether more lines are in the database than before.
    ///
    /// # Errors
    /// The file does not fit, or the database fails.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<bool, SinkError> {
        let known = self.page.len();
        self.splitter.push(bytes, &mut self.page)?;
        let new = self.page.iter().skip(known);
        self.page_bytes += new.map(Vec::len).sum::<usize>();
        let is_full = self.page.len() >= PAGE_LINES || self.page_bytes >= PAGE_BYTES;
        if is_full {
            self.flush().await?;
        }
        Ok(is_full)
    }

    /// Ends the file, which goes at `expires_at`.
    ///
    /// # Errors
    /// The file does not fit, or the database fails.
    pub async fn finish(mut self, expires_at: Option<UnixMs>) -> Result<(), SinkError> {
        self.page.extend(self.splitter.finish()?);
        self.flush().await?;
        let (bytes, lines) = (self.splitter.bytes(), self.splitter.lines());
        self.store
            .finish_file(&self.file, bytes, lines, expires_at)
            .await?;
        Ok(())
    }

    async fn flush(&mut self) -> StoreResult<()> {
        for page in self.page.chunks(PAGE_LINES) {
            self.store
                .append_lines(&self.file, self.next_number, page)
                .await?;
            self.next_number += i64::try_from(page.len()).unwrap_or(i64::MAX);
        }
        self.page.clear();
        self.page_bytes = 0;
        Ok(())
    }
}
