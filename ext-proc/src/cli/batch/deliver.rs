//! Writes the files of a batch that has ended.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use isotherm_batch::store::{BatchRow, BatchStatus, Store};

/// Lines that are read at once.
const PAGE_LINES: u32 = 100;

/// Writes both files, and says how the batch ended. A file appears whole or not at all.
pub(super) async fn deliver(
    store: &Store,
    batch: &BatchRow,
    output: &Path,
    errors: &Path,
) -> anyhow::Result<ExitCode> {
    let files = [
        (batch.output_file_id.as_deref(), output),
        (batch.error_file_id.as_deref(), errors),
    ];
    for (file, path) in files {
        match file {
            Some(file) => write(store, batch, file, path).await?,
            // An older file would pass for this batch's.
            None => remove(path)?,
        }
    }
    store.mark_delivered(&batch.id).await?;
    eprintln!(
        "{}: {} of {} requests succeeded",
        batch.status, batch.completed, batch.total
    );
    if let Some(mistakes) = &batch.errors {
        eprintln!("{}", describe(mistakes));
    }
    if batch.failed > 0 {
        eprintln!("{} errors are in {}", batch.failed, errors.display());
    }
    let is_success = batch.status == BatchStatus::Completed && batch.failed == 0;
    Ok(match is_success {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn write(store: &Store, batch: &BatchRow, file: &str, path: &Path) -> anyhow::Result<()> {
    let file = store.file(&batch.owner, file).await?;
    let file = file.context("the results are gone from the database")?;
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let cannot_write = || format!("cannot write {}", part.display());
    let mut writer = BufWriter::new(File::create(&part).with_context(cannot_write)?);
    let mut after = 0;
    loop {
        let page = store.file_lines(&file, after, PAGE_LINES).await?;
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (_, line) in &page {
            writer.write_all(line).with_context(cannot_write)?;
        }
    }
    let written = writer.into_inner().map_err(|error| error.into_error());
    written.with_context(cannot_write)?.sync_all()?;
    fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove the old {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The mistakes of an input file, one in a line.
pub(super) fn describe(mistakes: &str) -> String {
    let list: serde_json::Value = serde_json::from_str(mistakes).unwrap_or_default();
    let mistakes = list.pointer("/data").and_then(|data| data.as_array());
    let lines = mistakes.into_iter().flatten().map(|mistake| {
        let member = |name: &str| mistake.get(name);
        let message = member("message").and_then(|message| message.as_str());
        let message = message.unwrap_or_default();
        match member("line").and_then(|line| line.as_u64()) {
            Some(line) => format!("line {line}: {message}"),
            None => message.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_their_lines() {
        let mistakes = r#"{"data":[{"message":"a","line":3},{"message":"b","line":null}]}"#;
        assert_eq!(describe(mistakes), "line 3: a\nb");
        assert_eq!(describe("nonsense"), "");
    }
}
