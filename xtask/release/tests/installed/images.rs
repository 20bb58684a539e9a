//! The images: complete layouts, whose layers unpack to roots in which the programs run.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use flate2::read::GzDecoder;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest};
use sha2::{Digest as _, Sha256};
use tar::Archive;

use crate::files::{find, is_static, successful};

/// An image layout in memory.
pub(crate) struct Layout {
    files: BTreeMap<String, Vec<u8>>,
}

impl Layout {
    /// Reads the archive of an image.
    pub(crate) fn read(name: &str) -> anyhow::Result<Self> {
        let start = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
        let mut archive = Archive::new(File::open(find(&start, ".oci.tar")?)?);
        let mut files = BTreeMap::new();
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content)?;
            files.insert(path, content);
        }
        Ok(Self { files })
    }

    /// The content of a descriptor, whose digest and size are right.
    fn blob(&self, descriptor: &Descriptor) -> anyhow::Result<&[u8]> {
        let digest = descriptor.digest().digest();
        let content = self.files.get(&format!("blobs/sha256/{digest}"));
        let content = content.with_context(|| format!("no {digest}"))?;
        let found = Sha256::digest(content);
        let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, digest);
        assert_eq!(content.len() as u64, descriptor.size());
        Ok(content)
    }

    /// The descriptor of the image's index.
    pub(crate) fn index(&self) -> anyhow::Result<Descriptor> {
        let index = self.files.get("index.json").context("index.json")?;
        let index = ImageIndex::from_reader(index.as_slice())?;
        let [descriptor] = index.manifests().as_slice() else {
            anyhow::bail!("{} images in the layout", index.manifests().len());
        };
        Ok(descriptor.clone())
    }

    /// The images by architecture, each with its configuration and its only layer.
    fn images(&self) -> anyhow::Result<Vec<(Arch, ImageConfiguration, Vec<u8>)>> {
        let index = ImageIndex::from_reader(self.blob(&self.index()?)?)?;
        let mut images = Vec::new();
        for descriptor in index.manifests() {
            let platform = descriptor.platform().as_ref().context("a platform")?;
            let manifest = ImageManifest::from_reader(self.blob(descriptor)?)?;
            let config = ImageConfiguration::from_reader(self.blob(manifest.config())?)?;
            assert_eq!(config.architecture(), platform.architecture());
            let [layer] = manifest.layers().as_slice() else {
                anyhow::bail!("{} layers", manifest.layers().len());
            };
            let mut content = Vec::new();
            GzDecoder::new(self.blob(layer)?).read_to_end(&mut content)?;
            images.push((platform.architecture().clone(), config, content));
        }
        Ok(images)
    }
}

#[test]
fn an_image_says_what_it_is_and_has_no_rights() -> anyhow::Result<()> {
    for name in ["isotherm", "isotherm-engine"] {
        for (_, config, _) in Layout::read(name)?.images()? {
            let labels = config.labels_of_config().context("labels")?;
            for label in ["version", "revision", "created", "licenses"] {
                let value = labels.get(&format!("org.opencontainers.image.{label}"));
                assert!(
                    value.is_some_and(|value| !value.is_empty()),
                    "{name}: {label}"
                );
            }
            let config = config.config().as_ref().context("a configuration")?;
            assert_eq!(config.user().as_deref(), Some("65532:65532"));
            let program = format!("/{name}");
            assert_eq!(config.entrypoint().as_deref(), Some(&[program][..]));
        }
    }
    Ok(())
}

#[test]
fn the_image_of_the_filter_has_one_file_for_every_architecture() -> anyhow::Result<()> {
    let images = Layout::read("isotherm-filter")?.images()?;
    let architectures: Vec<&Arch> = images.iter().map(|(arch, _, _)| arch).collect();
    assert_eq!(architectures, [&Arch::Amd64, &Arch::ARM64]);
    let module = fs::read(find("isotherm_filter-", ".wasm")?)?;
    for (_, _, layer) in &images {
        let mut archive = Archive::new(layer.as_slice());
        let mut entries = archive.entries()?;
        let mut entry = entries.next().context("a file")??;
        assert_eq!(entry.path()?, Path::new("plugin.wasm"));
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        assert_eq!(content, module);
        assert!(entries.next().is_none());
    }
    Ok(())
}

#[test]
fn the_programs_run_in_the_root_of_their_image() -> anyhow::Result<()> {
    for (name, argument) in [("isotherm", "--version"), ("isotherm-engine", "--help")] {
        let images = Layout::read(name)?.images()?;
        let host = if cfg!(target_arch = "x86_64") {
            Arch::Amd64
        } else {
            Arch::ARM64
        };
        let image = images.iter().find(|(arch, _, _)| *arch == host);
        let (_, _, layer) = image.context("no image for this machine")?;
        let root = tempfile::tempdir()?;
        Archive::new(layer.as_slice()).unpack(root.path())?;
        let authorities = fs::read(root.path().join("etc/ssl/certs/ca-certificates.crt"))?;
        assert!(authorities.starts_with(b"-----BEGIN CERTIFICATE-----"));
        if !is_static()? {
            println!("{name} does not run in its image: this release is for tests, and not static");
            continue;
        }
        let mut program = Command::new("unshare");
        program
            .args(["--user", "--map-root-user", "--root"])
            .arg(root.path());
        let output = successful(program.args([&format!("/{name}"), argument]))?;
        let printed = String::from_utf8(output.stdout)?;
        assert!(printed.contains(name), "{printed}");
    }
    Ok(())
}
