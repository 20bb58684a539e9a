//! The versions of Envoy in `envoy/envoy-version.toml`, with the checksums of their wheels.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

/// A version, and where it comes from.
#[derive(Clone)]
pub(super) struct Pin {
    pub(super) version: String,
    pub(super) package: String,
    pub(super) platform: String,
    pub(super) wheel_sha256: String,
    pub(super) binary: String,
}

impl Pin {
    /// The version that the project is built and tested against.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        Ok(Self::read_all(root)?.0)
    }

    /// The pinned version, and the others, oldest first.
    pub(super) fn read_all(root: &Path) -> anyhow::Result<(Self, Vec<Self>)> {
        let path = root.join("envoy/envoy-version.toml");
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // The file has lines `name = "text"` and one table; a TOML parser would double the build time of this program.
        let (pinned, others) = text
            .split_once("[others]")
            .with_context(|| format!("{} has no `[others]`", path.display()))?;
        let value = |name: &str| {
            let found = pairs(pinned).find(|(key, _)| key == name);
            let value = found.map(|(_, value)| value);
            value.with_context(|| format!("{} has no `{name}`", path.display()))
        };
        let pin = Self {
            version: value("version")?,
            package: value("package")?,
            platform: value("platform")?,
            wheel_sha256: value("wheel_sha256")?,
            binary: value("binary")?,
        };
        let others = pairs(others).map(|(version, wheel_sha256)| Self {
            version,
            wheel_sha256,
            ..pin.clone()
        });
        let others = others.collect();
        Ok((pin, others))
    }
}

/// The lines `name = "text"` of a text.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let bare = |part: &str| part.trim().trim_matches('"').to_owned();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(move |(name, value)| (bare(name), bare(value)))
}
