//! The chart: it renders without a value set, and names an image of the release.

use std::fs::{self, File};
use std::process::Command;

use flate2::read::GzDecoder;
use tar::Archive;

use crate::files::{find, mesh_program, successful};
use crate::images::Layout;

#[test]
fn the_chart_names_the_image_of_the_release_by_its_digest() -> anyhow::Result<()> {
    let chart = find("isotherm-", ".tgz")?;
    let folder = tempfile::tempdir()?;
    Archive::new(GzDecoder::new(File::open(&chart)?)).unpack(folder.path())?;
    let values = fs::read_to_string(folder.path().join("isotherm/values.yaml"))?;
    let digest = Layout::read("isotherm")?.index()?.digest().to_string();
    assert!(
        values.contains(&format!("digest: \"{digest}\"")),
        "{values}"
    );

    let Some(helm) = mesh_program("helm") else {
        println!("the chart is not rendered");
        return Ok(());
    };
    let rendered = successful(
        Command::new(helm)
            // A helm that `go install` builds takes the cluster for one of version 1.20.
            .args(["template", "isotherm", "--kube-version", "1.35.0"])
            .arg(&chart),
    )?;
    let rendered = String::from_utf8(rendered.stdout)?;
    let images = rendered
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "));
    let images: Vec<&str> = images.map(|image| image.trim_matches('"')).collect();
    assert!(!images.is_empty(), "{rendered}");
    for image in images {
        assert!(image.ends_with(&format!("/isotherm@{digest}")), "{image}");
    }
    Ok(())
}
