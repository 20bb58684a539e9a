//! The files of a report, side by side in one directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Writes files of these names and contents into a directory, which is made if there is none; returns their paths.
///
/// # Errors
/// When the directory cannot be made, or a file cannot be written.
pub(crate) fn write<const N: usize>(
    directory: &Path,
    files: [(&str, String); N],
) -> anyhow::Result<[PathBuf; N]> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let paths = files.each_ref().map(|(name, _)| directory.join(name));
    for (path, (_, text)) in paths.iter().zip(files) {
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_or_the_first_failure_is_named() {
        let directory = std::env::temp_dir().join(format!("isotherm-files-{}", std::process::id()));
        let inner = directory.join("a/b");
        let [one, two] = write(&inner, [("1.txt", "one".into()), ("2.txt", "two".into())]).unwrap();
        assert_eq!(fs::read_to_string(&one).unwrap(), "one");
        assert_eq!(fs::read_to_string(&two).unwrap(), "two");
        let error = write(&one, [("3.txt", String::new())]).unwrap_err();
        assert!(error.to_string().starts_with("cannot create "), "{error}");
        let error = write(&directory, [("a", String::new())]).unwrap_err();
        assert!(error.to_string().starts_with("cannot write "), "{error}");
        fs::remove_dir_all(&directory).unwrap();
    }
}
