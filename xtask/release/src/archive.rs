//! Archives whose bytes follow from their content alone.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use flate2::{Compression, GzBuilder};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// A file of an archive or a package.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Path relative to the archive's root.
    pub(crate) path: String,
    mode: u32,
    content: Vec<u8>,
}

impl Entry {
    /// A file that everyone reads.
    pub(crate) fn file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode: 0o644,
            content: content.into(),
        }
    }

    /// A file that everyone starts.
    pub(crate) fn program(path: impl Into<String>, content: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            mode: 0o755,
            content,
        }
    }

    /// The file at another path.
    pub(crate) fn at(mut self, path: String) -> Self {
        self.path = path;
        self
    }

    /// The file in another folder.
    pub(crate) fn below(self, folder: &str) -> Self {
        let path = format!("{folder}/{}", self.path);
        self.at(path)
    }
}

/// Writes files below a folder, for tools that read folders. Their modes do not depend on the user's mask.
pub(crate) fn unpack(entries: &[Entry], folder: &Path) -> anyhow::Result<()> {
    let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode));
    for entry in entries {
        let path = folder.join(&entry.path);
        let parent = path.parent().context("a file has a folder")?;
        fs::create_dir_all(parent)?;
        for above in parent
            .ancestors()
            .take_while(|above| above.starts_with(folder))
        {
            open(above, 0o755)?;
        }
        fs::write(&path, &entry.content)
            .and_then(|()| open(&path, entry.mode))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A tar archive: sorted, with a folder before its files, owned by root, every time the given one.
pub(crate) fn tar(entries: &[Entry], time: u64) -> anyhow::Result<Vec<u8>> {
    let mut sorted: BTreeMap<String, Option<&Entry>> = BTreeMap::new();
    for entry in entries {
        let folders = Path::new(&entry.path).ancestors().skip(1);
        for folder in folders
            .filter_map(Path::to_str)
            .filter(|path| !path.is_empty())
        {
            sorted.insert(format!("{folder}/"), None);
        }
        sorted.insert(entry.path.clone(), Some(entry));
    }
    let mut archive = Builder::new(Vec::new());
    for (path, entry) in sorted {
        let content = entry.map_or(&[][..], |entry| &entry.content);
        let mut header = Header::new_gnu();
        header.set_entry_type(if entry.is_some() {
            EntryType::Regular
        } else {
            EntryType::Directory
        });
        header.set_mode(entry.map_or(0o755, |entry| entry.mode));
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, path, content)?;
    }
    Ok(archive.into_inner()?)
}

/// Compresses by gzip, without a name or a time.
pub(crate) fn gzip(content: &[u8], level: Compression) -> anyhow::Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), level);
    writer.write_all(content)?;
    Ok(writer.finish()?)
}

/// The SHA-256 in hexadecimal.
pub(crate) fn sha256(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_does_not_depend_on_the_order_of_its_files() {
        let one = Entry::file("b/c.txt", "text");
        let other = Entry::program("a", b"program".to_vec());
        let archive = tar(&[one.clone(), other.clone()], 7).unwrap();
        assert_eq!(archive, tar(&[other, one], 7).unwrap());
        let mut reader = tar::Archive::new(archive.as_slice());
        let found: Vec<(String, u32, u64)> = reader
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let path = entry.path().unwrap().display().to_string();
                (
                    path,
                    entry.header().mode().unwrap(),
                    entry.header().mtime().unwrap(),
                )
            })
            .collect();
        let expected = [("a", 0o755, 7), ("b/", 0o755, 7), ("b/c.txt", 0o644, 7)];
        let expected = expected.map(|(path, mode, time)| (path.to_owned(), mode, time));
        assert_eq!(found, expected);
    }

    #[test]
    fn compressed_bytes_hold_no_time() {
        let bytes = gzip(b"text", Compression::fast()).unwrap();
        assert_eq!(bytes.get(4..8), Some(&[0; 4][..]));
    }
}
