//! Files that change together, in the way of a secret that Kubernetes mounts: links through `..data`, which one rename replaces.
//!
//! Envoy reads key and certificate as one secret and the authority as another. When the files change one by one, it may read a
//! key without its certificate, and then keeps the old authority for some clusters until the next change.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;

/// The link to the folder of the newest files.
const NEWEST: &str = "..data";

/// Replaces the files of a folder at once.
pub(crate) fn replace(folder: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    let newest = folder.join(NEWEST);
    let old = fs::read_link(&newest).ok();
    let new = tempfile::Builder::new().prefix("..").tempdir_in(folder)?;
    for (name, text) in files {
        crate::write(&new.path().join(name), text)?;
    }
    let new = new.keep();
    let name = new.file_name().context("a folder without a name")?;
    let link = folder.join("..data.new");
    symlink(name, &link)?;
    fs::rename(&link, &newest)?;
    for (name, _) in files {
        let file = folder.join(name);
        if !file.is_symlink() {
            symlink(Path::new(NEWEST).join(name), &link)?;
            fs::rename(&link, &file)?;
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(folder.join(old))?;
    }
    Ok(())
}
