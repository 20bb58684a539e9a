//! The content of a file, in pages that are bounded in bytes: a reader holds as much of a file of long lines as of short ones.

use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::files::FileRow;
use super::statement::Statement;
use super::{Store, StoreResult};

/// Bytes of one page of a file's content. A client that stops reading keeps a page or two in memory.
const PAGE_BYTES: i64 = 256 << 10;
/// Lines of one page of a file's content.
const PAGE_LINES: i64 = 500;
/// Bytes of whole lines that are read at once, beyond one line.
const LINES_BYTES: i64 = 4 << 20;

/// A place in a file's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePosition {
    /// Number of the last line before the place.
    line: i64,
    /// Bytes of the next line before the place.
    offset: i64,
}

/// A line's number, and its length in bytes.
type LineLength = (i64, i64);

impl Store {
    /// The next bytes of a file, and the place behind them; `None` at the end of the file.
    pub async fn file_page(
        &self,
        file: &FileRow,
        at: FilePosition,
    ) -> StoreResult<Option<(Vec<u8>, FilePosition)>> {
        let lengths = self.line_lengths(file, at.line, PAGE_LINES).await?;
        let Some((number, length)) = lengths.first().copied() else {
            return Ok(None);
        };
        if at.offset > 0 || length > PAGE_BYTES {
            return self.line_piece(file, (number, length), at.offset).await;
        }
        let last = last_within(&lengths, PAGE_BYTES);
        let lines = self.whole_lines(file, at.line, last).await?;
        let bytes = lines.into_iter().flat_map(|(_, line)| line).collect();
        let behind = FilePosition {
            line: last,
            offset: 0,
        };
        Ok(Some((bytes, behind)))
    }

    /// The next lines of a file after the line `after`, with their numbers: at most `count` of them, and at most 4 MiB
    /// beyond the first.
    pub async fn file_lines(
        &self,
        file: &FileRow,
        after: i64,
        count: u32,
    ) -> StoreResult<Vec<(i64, Vec<u8>)>> {
        let lengths = self.line_lengths(file, after, i64::from(count)).await?;
        match lengths.is_empty() {
            true => Ok(Vec::new()),
            false => {
                let last = last_within(&lengths, LINES_BYTES);
                self.whole_lines(file, after, last).await
            }
        }
    }

    async fn line_lengths(
        &self,
        file: &FileRow,
        after: i64,
        count: i64,
    ) -> StoreResult<Vec<LineLength>> {
        let mut select = select(file, "CAST(LENGTH(", ") AS BIGINT)")?;
        select.push(" AND number > ").bind(after)?;
        select.push(" ORDER BY number LIMIT ").bind(count)?;
        let rows = select.build().fetch_all(&self.pool).await?;
        let length = |row: &AnyRow| Ok((row.try_get("number")?, row.try_get("content")?));
        rows.iter().map(length).collect()
    }

    /// The lines after the line `after`, up to the line `last`.
    async fn whole_lines(
        &self,
        file: &FileRow,
        after: i64,
        last: i64,
    ) -> StoreResult<Vec<(i64, Vec<u8>)>> {
        let mut select = select(file, "", "")?;
        select.push(" AND number > ").bind(after)?;
        select.push(" AND number <= ").bind(last)?;
        select.push(" ORDER BY number");
        let rows = select.build().fetch_all(&self.pool).await?;
        let line = |row: &AnyRow| Ok((row.try_get("number")?, row.try_get("content")?));
        rows.iter().map(line).collect()
    }

    /// A piece of one line, from `offset` on.
    async fn line_piece(
        &self,
        file: &FileRow,
        (number, length): LineLength,
        offset: i64,
    ) -> StoreResult<Option<(Vec<u8>, FilePosition)>> {
        // `SUBSTR` counts from 1.
        let mut select = select_piece(file, offset.saturating_add(1))?;
        select.push(" AND number = ").bind(number)?;
        let Some(row) = select.build().fetch_optional(&self.pool).await? else {
            return Ok(None); // deleted meanwhile
        };
        let bytes: Vec<u8> = row.try_get("content")?;
        let read = offset.saturating_add(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        let behind = match bytes.is_empty() || read >= length {
            true => FilePosition {
                line: number,
                offset: 0,
            },
            false => FilePosition {
                line: number - 1,
                offset: read,
            },
        };
        Ok(Some((bytes, behind)))
    }
}

/// The last line that fits into `bytes_max` together with the lines before it; the first fits always.
fn last_within(lengths: &[LineLength], bytes_max: i64) -> i64 {
    let mut bytes = 0_i64;
    let fits = |(_, length): &&LineLength| {
        bytes = bytes.saturating_add(*length);
        bytes <= bytes_max
    };
    let last = lengths.iter().take_while(fits).last().or(lengths.first());
    last.map_or(0, |(number, _)| *number)
}

/// Selects number and content of a file's lines, the content inside an expression.
fn select(file: &FileRow, before: &'static str, after: &'static str) -> StoreResult<Statement> {
    let mut select = Statement::new("SELECT number, ");
    select.push(before).push(column(file)).push(after);
    from(file, select)
}

/// Selects a page of the content of a file's lines, from the byte `first` on.
fn select_piece(file: &FileRow, first: i64) -> StoreResult<Statement> {
    let mut select = Statement::new("SELECT SUBSTR(");
    select.push(column(file)).push(", CAST(").bind(first)?;
    select.push(" AS INTEGER), CAST(").bind(PAGE_BYTES)?;
    select.push(" AS INTEGER))");
    from(file, select)
}

fn column(file: &FileRow) -> &'static str {
    match &file.results_of {
        None => "content",
        Some(_) => "result",
    }
}

fn from(file: &FileRow, mut select: Statement) -> StoreResult<Statement> {
    match &file.results_of {
        None => {
            select.push(" AS content FROM isotherm_file_lines WHERE file_id = ");
            select.bind(file.id.as_str())?;
        }
        Some((batch, is_success)) => {
            select.push(" AS content FROM isotherm_requests WHERE batch_id = ");
            select.bind(batch.as_str())?;
            select.push(" AND result IS NOT NULL AND is_success = ");
            select.bind(i64::from(*is_success))?;
        }
    }
    Ok(select)
}
