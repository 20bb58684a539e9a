//! The versions of Envoy in `envoy/envoy-version.toml`: the checksums of their wheels, and the control planes that ship them.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

const FILE: &str = "envoy/envoy-version.toml";

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
        let [pinned, others, _] = read(root)?;
        let value = |name: &str| {
            let found = pairs(&pinned).find(|(key, _)| key == name);
            let value = found.map(|(_, value)| value);
            value.with_context(|| format!("{FILE} has no `{name}`"))
        };
        let pin = Self {
            version: value("version")?,
            package: value("package")?,
            platform: value("platform")?,
            wheel_sha256: value("wheel_sha256")?,
            binary: value("binary")?,
        };
        let others = pairs(&others).map(|(version, wheel_sha256)| Self {
            version,
            wheel_sha256,
            ..pin.clone()
        });
        let others = others.collect();
        Ok((pin, others))
    }
}

/// The control planes of meshes, and the version of Envoy of each.
pub(super) fn control_planes(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let [.., planes] = read(root)?;
    Ok(pairs(&planes).collect())
}

/// The file: what stands before its tables, and both tables. It has lines `name = "text"` only; a TOML parser would double
/// the build time of this program.
fn read(root: &Path) -> anyhow::Result<[String; 3]> {
    let text =
        fs::read_to_string(root.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
    let parts = text.split_once("[others]").and_then(|(pinned, rest)| {
        let (others, planes) = rest.split_once("[control_planes]")?;
        Some([pinned, others, planes].map(str::to_owned))
    });
    parts.with_context(|| format!("{FILE} has no `[others]` with `[control_planes]` behind it"))
}

/// The lines `name = "text"` of a text.
fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    let bare = |part: &str| part.trim().trim_matches('"').to_owned();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(move |(name, value)| (bare(name), bare(value)))
}
